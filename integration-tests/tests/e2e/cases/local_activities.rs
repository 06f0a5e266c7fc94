//! Activities that run on the spot.

use harvest_integration_tests::World;
use harvest_integration_tests::observer::report;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

#[activity(local = true)]
async fn double(ctx: &ActivityContext, number: u32) -> Result<u32, ActivityFailure> {
    report(ctx, &number.to_string(), None).await?;
    Ok(number * 2)
}

#[workflow]
async fn doubling(ctx: &WorkflowContext, mut number: u32) -> Result<u32, HarvestError> {
    for _ in 0..3 {
        number = ctx.execute_activity(&double, number).await?;
    }
    ctx.timer("later", Duration::from_millis(100)).await?;
    ctx.execute_activity(&double, number).await
}

pub async fn local_activities_run_within_one_workflow_task_and_are_recorded(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![doubling], activities![double])?;
    let run = world.start(&doubling, "doubling", 1).await?;
    assert_eq!(world.result(&run).await?, 16);
    let calls = world.calls_of("doubling");
    assert_eq!(calls.iter().filter_map(|call| call.payload.as_str()).collect::<Vec<_>>(), ["1", "2", "4", "8"]);
    let keys: std::collections::BTreeSet<_> = calls.iter().map(|call| &call.idempotency_key).collect();
    assert_eq!(keys.len(), 4, "one key each");
    let mut expected = vec!["WorkflowStarted", "WorkflowTaskCompleted"];
    expected.extend(["LocalActivityScheduled", "LocalActivityCompleted"].repeat(3));
    expected.extend(["TimerStarted", "TimerFired", "WorkflowTaskCompleted", "LocalActivityScheduled", "LocalActivityCompleted", "WorkflowCompleted"]);
    assert_eq!(world.variants(&run).await?, expected);
    Ok(())
}

#[activity(local = true)]
async fn never(ctx: &ActivityContext) -> Result<(), ActivityFailure> {
    report(ctx, "never", None).await?;
    Err(ActivityFailure::new("Never", format!("attempt {}", ctx.attempt())))
}

#[activity(local = true, retry = RetryPolicy::fixed(3, Duration::from_millis(10)))]
async fn never_thrice(ctx: &ActivityContext) -> Result<(), ActivityFailure> {
    report(ctx, "never", None).await?;
    Err(ActivityFailure::new("Never", format!("attempt {}", ctx.attempt())))
}

#[workflow]
async fn failing(ctx: &WorkflowContext, thrice: bool) -> Result<String, HarvestError> {
    let ended = if thrice { ctx.execute_activity(&never_thrice, ()).await } else { ctx.execute_activity(&never, ()).await };
    match ended {
        Err(HarvestError::ActivityFailed { attempt, error_type, message, .. }) => Ok(format!("{attempt} {error_type} {message}")),
        other => Ok(format!("{other:?}")),
    }
}

pub async fn reference_01_a_local_activity_without_any_policy_is_tried_once(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![failing], activities![never, never_thrice])?;
    let once = world.start(&failing, "once", false).await?;
    assert_eq!(world.result(&once).await?, "1 Never attempt 1");
    assert_eq!(world.calls_of("once").len(), 1);
    let thrice = world.start(&failing, "thrice", true).await?;
    assert_eq!(world.result(&thrice).await?, "3 Never attempt 3");
    assert_eq!(world.calls_of("thrice").iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    let failed = world.variants(&thrice).await?.into_iter().filter(|kind| kind == "LocalActivityFailed").count();
    assert_eq!(failed, 3, "each failed attempt is an event");
    Ok(())
}

#[activity(local = true)]
async fn hangs(_ctx: &ActivityContext) -> Result<(), ActivityFailure> {
    std::future::pending().await
}

#[activity(local = true)]
async fn beats(ctx: &ActivityContext) -> Result<(), ActivityFailure> {
    ctx.heartbeat(1).await?;
    Ok(())
}

#[workflow]
async fn outlasts(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    let hung = ctx.execute_activity(&hangs, ()).await;
    let beaten = ctx.execute_activity(&beats, ()).await;
    let said = |ended: Result<(), HarvestError>| ended.map_or_else(|error| error.error_type().to_owned(), |()| "nothing".to_owned());
    Ok(format!("{} {}", said(hung), said(beaten)))
}

/// The worker's floor allows two minutes, its cap three seconds; a workflow task may take one.
pub async fn reference_03_a_hanging_local_activity_is_ended_at_the_cap_and_may_outlast_a_workflow_task(world: Arc<World>) -> anyhow::Result<()> {
    let config =
        WorkerConfig::default().with_default_activity_start_to_close(Duration::from_secs(120)).with_max_local_activity_start_to_close(Duration::from_secs(3));
    let worker = world.worker(config, workflows![outlasts], activities![hangs, beats])?;
    let options = StartOptions::new("outlasts").workflow_task_timeout(Duration::from_secs(1));
    let run = world.start_with(&outlasts, options, ()).await?;
    assert_eq!(world.result(&run).await?, "Timeout LocalActivityHeartbeat");
    let history = run.history().await?;
    let took = history.last().map_or(0, |event| event.at_ms) - history.first().map_or(0, |event| event.at_ms);
    assert!((3_000..60_000).contains(&took), "{took} ms");
    let tasks = world.variants(&run).await?.into_iter().filter(|kind| kind == "WorkflowTaskCompleted").count();
    assert_eq!(tasks, 1, "it was one workflow task, which was not given to anybody else");
    worker.stop().await
}
