//! Endings other than a result.

use harvest_integration_tests::World;
use harvest_sdk::prelude::*;
use harvest_sdk::{ClientError, WorkflowOutcomeError};
use std::sync::Arc;
use std::time::Duration;

#[workflow]
async fn attentive(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.or_cancelled(ctx.receive_signal::<()>("never")).await
}

#[workflow]
async fn deaf(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("word").await
}

pub async fn code_that_looks_is_cancelled_and_code_that_does_not_runs_on(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![attentive, deaf], activities![])?;
    let (attentive, deaf) = (world.start(&attentive, "attentive", ()).await?, world.start(&deaf, "deaf", ()).await?);
    attentive.cancel("enough").await?;
    deaf.cancel("enough").await?;
    match world.failure(&attentive).await? {
        WorkflowOutcomeError::Cancelled(reason) => assert!(reason.contains("enough"), "{reason}"),
        other => anyhow::bail!("{other:?}"),
    }
    assert_eq!(world.wait_for_state(&attentive, "CANCELLED").await?.state, "CANCELLED");
    // Asking twice asks once.
    deaf.cancel("again").await?;
    deaf.signal("word", "went on").await?;
    assert_eq!(world.result(&deaf).await?, "went on");
    assert_eq!(world.variants(&deaf).await?.iter().filter(|variant| *variant == "WorkflowCancelRequested").count(), 1);
    Ok(())
}

pub async fn a_terminated_run_ends_without_being_asked(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![deaf], activities![])?;
    let handle = world.start(&deaf, "doomed", ()).await?;
    handle.terminate("no longer needed").await?;
    match world.failure(&handle).await? {
        WorkflowOutcomeError::Terminated(reason) => assert!(reason.contains("no longer needed"), "{reason}"),
        other => anyhow::bail!("{other:?}"),
    }
    let late = handle.signal("word", "late").await;
    assert!(matches!(&late, Err(ClientError::Refused { reason, .. }) if reason == "WORKFLOW_CLOSED"), "{late:?}");
    // Starting it again finds the run as it ended.
    let again = world.start(&deaf, "doomed", ()).await?;
    assert_eq!((again.started_fresh(), again.execution_id()), (false, handle.execution_id()));
    Ok(())
}

pub async fn a_run_over_its_execution_timeout_ends(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![deaf], activities![])?;
    let options = StartOptions::new("slow").execution_timeout(Duration::from_millis(600));
    let handle = world.start_with(&deaf, options, ()).await?;
    let failure = world.failure(&handle).await?;
    assert!(matches!(failure, WorkflowOutcomeError::TimedOut(_)), "{failure:?}");
    let variants = world.variants(&handle).await?;
    assert_eq!(variants.last().map(String::as_str), Some("WorkflowExecutionTimedOut"));
    let answer = world.api().get("/workflows/by-id/deaf/slow").await?;
    assert_eq!((answer.status.as_u16(), answer.text("state")), (200, "TIMED_OUT"), "{answer:?}");
    Ok(())
}

#[workflow]
async fn failing(_ctx: &WorkflowContext) -> Result<(), WorkflowFailure> {
    Err(WorkflowFailure::new("Broken", "it broke").with_details(&serde_json::json!({"part": "axle"}))?)
}

pub async fn a_failure_keeps_its_type_message_and_details(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![failing], activities![])?;
    let handle = world.start(&failing, "broken", ()).await?;
    match world.failure(&handle).await? {
        WorkflowOutcomeError::Failed { error_type, message, details } => {
            assert_eq!((error_type.as_str(), message.as_str()), ("Broken", "it broke"));
            assert_eq!(details, Some(serde_json::json!({"part": "axle"})));
        }
        other => anyhow::bail!("{other:?}"),
    }
    let answer = world.api().get(&format!("/workflows/{}/result?wait=1s", handle.execution_id())).await?;
    assert_eq!((answer.text("state"), answer.body["error"]["error_type"].as_str()), ("FAILED", Some("Broken")), "{answer:?}");
    Ok(())
}
