//! Code that does not fit its history, and code that panics.

use harvest_integration_tests::World;
use harvest_integration_tests::eventually;
use harvest_integration_tests::samples::{flaky, note};
use harvest_sdk::WorkflowOutcomeError;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// The code that the run was started with.
mod original {
    use super::{HarvestError, WorkflowContext, note, workflow};

    #[workflow]
    pub async fn evolving(ctx: &WorkflowContext) -> Result<String, HarvestError> {
        let noted = ctx.execute_activity(&note, "first".to_owned()).await?;
        let word: String = ctx.receive_signal("word").await?;
        Ok(format!("{noted} {word}"))
    }
}

/// A change that does not fit runs under way: another activity comes first.
mod changed {
    use super::{HarvestError, WorkflowContext, flaky, workflow};

    #[workflow]
    pub async fn evolving(ctx: &WorkflowContext) -> Result<String, HarvestError> {
        let attempt = ctx.execute_activity(&flaky, 0).await?;
        let word: String = ctx.receive_signal("word").await?;
        Ok(format!("{attempt} {word}"))
    }
}

pub async fn a_change_of_code_blocks_the_run_visibly_until_fitting_code_comes_back(world: Arc<World>) -> anyhow::Result<()> {
    let first = world.worker(WorkerConfig::default(), workflows![original::evolving], activities![note])?;
    let handle = world.start(&original::evolving, "evolving", ()).await?;
    world.wait_for_calls("evolving", 1).await?;
    eventually("the result of the first activity is recorded", Duration::from_secs(20), || async {
        Ok((handle.describe().await?.history_events >= 5).then_some(()))
    })
    .await?;
    first.stop().await?;

    let wrong = world.worker(WorkerConfig::default(), workflows![changed::evolving], activities![flaky])?;
    handle.signal("word", "on").await?;
    let block = eventually("the run is blocked", Duration::from_secs(30), || async { Ok(handle.describe().await?.blocked) }).await?;
    assert!(block.expected.contains("note"), "{block:?}");
    assert!(block.actual.contains("flaky"), "{block:?}");
    assert!(block.count >= 1 && block.since_ms > 0, "{block:?}");
    let shown = world.api().get(&format!("/workflows/{}", handle.execution_id())).await?;
    assert!(shown.body["nd_block"]["nd_blocked_at"].is_string(), "{shown:?}");
    assert_eq!(handle.describe().await?.state, "RUNNING");
    wrong.stop().await?;

    world.serve(workflows![original::evolving], activities![note])?;
    assert_eq!(world.result(&handle).await?, "first on");
    assert!(handle.describe().await?.blocked.is_none());
    assert_eq!(world.calls_of("evolving").len(), 1);
    Ok(())
}

#[workflow]
async fn fragile(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.timer("calm", Duration::from_millis(50)).await?;
    panic!("it was bound to happen");
}

pub async fn a_panic_in_workflow_code_is_retried_and_then_a_typed_failure(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![fragile], activities![])?;
    let handle = world.start(&fragile, "fragile", ()).await?;
    let ended = eventually("the run has failed", Duration::from_secs(60), || async {
        match handle.poll_result(Duration::from_secs(20)).await {
            Ok(_) => Ok(None),
            Err(error) => Ok(Some(error)),
        }
    });
    match ended.await? {
        WorkflowOutcomeError::Failed { error_type, message, .. } => {
            assert_eq!(error_type, "HandlerPanic");
            assert!(message.contains("bound to happen"), "{message}");
        }
        other => anyhow::bail!("{other:?}"),
    }
    world.forget("fragile");
    Ok(())
}
