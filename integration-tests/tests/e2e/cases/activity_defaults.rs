//! Options of activities that the call site leaves open.

use harvest_integration_tests::World;
use harvest_integration_tests::eventually::eventually;
use harvest_integration_tests::observer::report;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Declares nothing.
#[activity]
async fn plain(ctx: &ActivityContext) -> Result<u32, ActivityFailure> {
    report(ctx, "plain", None).await?;
    Err(ActivityFailure::new("Busy", "always"))
}

/// Declares one try.
#[activity(retry = RetryPolicy::none())]
async fn once(ctx: &ActivityContext) -> Result<u32, ActivityFailure> {
    report(ctx, "once", None).await?;
    Err(ActivityFailure::new("Busy", "always"))
}

/// Tries both, the second also with a policy of the call's own.
#[workflow]
async fn tries(ctx: &WorkflowContext) -> Result<(), String> {
    let outcome = |outcome: Result<u32, HarvestError>| match outcome {
        Err(HarvestError::ActivityFailed { attempt, .. }) => Ok(attempt),
        other => Err(format!("{other:?}")),
    };
    let twice = ActivityOptions::new().retry(RetryPolicy::fixed(2, Duration::from_millis(5)));
    outcome(ctx.execute_activity(&plain, ()).await)?;
    outcome(ctx.execute_activity(&once, ()).await)?;
    outcome(ctx.execute_activity_with_opts(&once, (), twice).await)?;
    Ok(())
}

fn attempts_of(world: &World, workflow_id: &str) -> Vec<(String, u32)> {
    let calls = world.calls_of(workflow_id).into_iter();
    calls.map(|call| (call.payload.as_str().unwrap_or_default().to_owned(), call.attempt)).collect()
}

fn named(attempts: &[(&str, u32)]) -> Vec<(String, u32)> {
    attempts.iter().map(|(name, attempt)| ((*name).to_owned(), *attempt)).collect()
}

pub async fn reference_01_an_activity_without_any_policy_is_tried_three_times(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![tries], activities![plain, once])?;
    let handle = world.start(&tries, "implicit", ()).await?;
    world.result(&handle).await?;
    let expected = [("plain", 1), ("plain", 2), ("plain", 3), ("once", 1), ("once", 1), ("once", 2)];
    assert_eq!(attempts_of(&world, "implicit"), named(&expected));
    Ok(())
}

pub async fn reference_02_the_call_site_beats_the_attribute_which_beats_the_workers_floor(world: Arc<World>) -> anyhow::Result<()> {
    let config = WorkerConfig::default().with_default_activity_retry_policy(RetryPolicy::fixed(5, Duration::from_millis(5)));
    let worker = world.worker(config, workflows![tries], activities![plain, once])?;
    let handle = world.start(&tries, "floor", ()).await?;
    world.result(&handle).await?;
    let expected = [("plain", 1), ("plain", 2), ("plain", 3), ("plain", 4), ("plain", 5), ("once", 1), ("once", 1), ("once", 2)];
    assert_eq!(attempts_of(&world, "floor"), named(&expected));
    worker.stop().await
}

/// Its queue and its policy are known to whoever has its code, and to the server.
#[activity(queue = "elsewhere", retry = RetryPolicy::fixed(2, Duration::from_millis(5)))]
async fn distant(ctx: &ActivityContext) -> Result<u32, ActivityFailure> {
    report(ctx, "distant", None).await?;
    Err(ActivityFailure::new("Busy", "always"))
}

/// Knows it by name.
#[workflow]
async fn calls_by_name(ctx: &WorkflowContext) -> Result<String, String> {
    let options = ActivityOptions::new().schedule_to_start(Duration::from_secs(2));
    match ctx.execute_activity_raw_with_opts::<u32>("distant", (), options).await {
        Err(HarvestError::ActivityFailed { attempt, .. }) => Ok(format!("attempt {attempt}")),
        Err(HarvestError::Timeout { timeout, .. }) => Ok(format!("{timeout:?}")),
        other => Err(format!("{other:?}")),
    }
}

pub async fn an_activity_called_by_name_has_the_attribute_that_another_worker_registers(world: Arc<World>) -> anyhow::Result<()> {
    let elsewhere = world.worker(WorkerConfig::default().with_queues(["elsewhere"]), workflows![], activities![distant])?;
    let floor = WorkerConfig::default().with_default_activity_retry_policy(RetryPolicy::fixed(7, Duration::from_millis(5)));
    let caller = world.worker(floor, workflows![calls_by_name], activities![])?;
    // Owners hear of a registration soon, not at once.
    let mut number = 0;
    eventually("owners know the attribute", Duration::from_secs(30), || {
        number += 1;
        let (world, id) = (world.clone(), format!("by-name-{number}"));
        async move {
            let handle = world.start(&calls_by_name, &id, ()).await?;
            Ok((world.result(&handle).await? == "attempt 2").then_some(()))
        }
    })
    .await?;
    elsewhere.stop().await?;
    caller.stop().await
}
