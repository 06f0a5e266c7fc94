//! Timeouts of activities.

use harvest_integration_tests::World;
use harvest_integration_tests::observer::report;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Hangs at its first `hangs` attempts.
#[activity(start_to_close = "2s", retry = RetryPolicy::fixed(2, Duration::from_millis(20)))]
async fn hanging(ctx: &ActivityContext, hangs: u32) -> Result<u32, ActivityFailure> {
    report(ctx, hangs, None).await?;
    if ctx.attempt() <= hangs {
        std::future::pending::<()>().await;
    }
    Ok(ctx.attempt())
}

#[workflow]
async fn waits_for_hanging(ctx: &WorkflowContext, hangs: u32) -> Result<u32, HarvestError> {
    ctx.execute_activity(&hanging, hangs).await
}

pub async fn a_hanging_attempt_is_ended_and_tried_again(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![waits_for_hanging], activities![hanging])?;
    let handle = world.start(&waits_for_hanging, "once", 1).await?;
    assert_eq!(world.result(&handle).await?, 2);
    assert_eq!(world.calls_of("once").len(), 2);
    Ok(())
}

#[workflow]
async fn sees_the_timeout(ctx: &WorkflowContext, hangs: u32) -> Result<String, String> {
    match ctx.execute_activity(&hanging, hangs).await {
        Err(HarvestError::Timeout { attempt, timeout, .. }) => Ok(format!("{timeout:?} at attempt {attempt}")),
        other => Err(format!("{other:?}")),
    }
}

pub async fn the_last_hanging_attempt_is_a_timeout(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![sees_the_timeout], activities![hanging])?;
    let handle = world.start(&sees_the_timeout, "always", 9).await?;
    assert_eq!(world.result(&handle).await?, "StartToClose at attempt 2");
    assert!(world.variants(&handle).await?.contains(&"ActivityTimedOut".to_owned()));
    Ok(())
}

#[workflow]
async fn asks_a_dead_queue(ctx: &WorkflowContext) -> Result<String, String> {
    let options = ActivityOptions::new().queue("nobody-serves-this").schedule_to_start(Duration::from_millis(300));
    match ctx.execute_activity_with_opts(&hanging, 0, options).await {
        Err(HarvestError::Timeout { timeout, .. }) => Ok(format!("{timeout:?}")),
        other => Err(format!("{other:?}")),
    }
}

pub async fn an_activity_that_nobody_takes_times_out_in_its_queue(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![asks_a_dead_queue], activities![hanging])?;
    let handle = world.start(&asks_a_dead_queue, "dead", ()).await?;
    assert_eq!(world.result(&handle).await?, "ScheduleToStart");
    assert!(world.calls_of("dead").is_empty());
    Ok(())
}

/// Beats at its first attempt and falls silent; later attempts give what the one before said last.
#[activity(start_to_close = "60s", heartbeat_timeout = "2s", retry = RetryPolicy::fixed(5, Duration::from_millis(20)))]
async fn beating(ctx: &ActivityContext) -> Result<Option<u32>, ActivityFailure> {
    report(ctx, "beating", None).await?;
    if ctx.attempt() > 1 {
        return Ok(ctx.heartbeat_details()?);
    }
    ctx.heartbeat(7_u32).await?;
    std::future::pending().await
}

#[workflow]
async fn waits_for_beating(ctx: &WorkflowContext) -> Result<Option<u32>, HarvestError> {
    ctx.execute_activity(&beating, ()).await
}

pub async fn a_silent_attempt_is_ended_and_its_details_reach_the_next(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![waits_for_beating], activities![beating])?;
    let handle = world.start(&waits_for_beating, "beats", ()).await?;
    let details = world.result(&handle).await?;
    assert_eq!(details, Some(7));
    let attempts: Vec<_> = world.calls_of("beats").into_iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    Ok(())
}
