//! Timeouts of activities.

use harvest_integration_tests::World;
use harvest_integration_tests::observer::report;
use harvest_proto::v1::event::Kind;
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

/// Never ends by itself.
#[activity(schedule_to_close = "1500ms", start_to_close = "400ms", retry = RetryPolicy::fixed(100, Duration::from_millis(20)).with_jitter(Jitter::None))]
async fn never_done(ctx: &ActivityContext) -> Result<u32, ActivityFailure> {
    report(ctx, "never", None).await?;
    std::future::pending().await
}

/// Fails at once, and the next attempt would begin after the end.
#[activity(schedule_to_close = "30s", retry = RetryPolicy::fixed(100, Duration::from_secs(60)).with_jitter(Jitter::None))]
async fn fails_for_long(ctx: &ActivityContext) -> Result<u32, ActivityFailure> {
    report(ctx, "fails", None).await?;
    Err(ActivityFailure::new("Busy", "come back in a minute"))
}

#[workflow]
async fn sees_the_end_of_the_budget(ctx: &WorkflowContext, activity: String) -> Result<String, String> {
    match ctx.execute_activity_raw::<u32>(&activity, (), "").await {
        Err(HarvestError::Timeout { timeout, .. }) => Ok(format!("{timeout:?}")),
        other => Err(format!("{other:?}")),
    }
}

pub async fn reference_04_all_attempts_together_have_a_budget(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![sees_the_end_of_the_budget], activities![never_done])?;
    let handle = world.start(&sees_the_end_of_the_budget, "budget", "never_done".to_owned()).await?;
    assert_eq!(world.result(&handle).await?, "ScheduleToClose");
    // An attempt begins every 420 ms, and none after 1500, however slow the machine is.
    let attempts = world.calls_of("budget").len();
    assert!((1..=4).contains(&attempts), "{attempts} attempts");
    assert!(world.variants(&handle).await?.contains(&"ActivityTimedOut".to_owned()));
    Ok(())
}

pub async fn reference_05_no_attempt_is_waited_for_that_would_begin_after_the_budget(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![sees_the_end_of_the_budget], activities![fails_for_long])?;
    let handle = world.start(&sees_the_end_of_the_budget, "skipped", "fails_for_long".to_owned()).await?;
    assert_eq!(world.result(&handle).await?, "ScheduleToClose");
    assert_eq!(world.calls_of("skipped").len(), 1);
    let history = handle.history().await?;
    let at = |wanted: fn(&Kind) -> bool| history.iter().find(|event| event.kind.as_ref().is_some_and(wanted)).map(|event| event.at_ms);
    let (scheduled, ended) = (at(|kind| matches!(kind, Kind::ActivityScheduled(_))), at(|kind| matches!(kind, Kind::ActivityTimedOut(_))));
    let took = ended.zip(scheduled).map(|(ended, scheduled)| ended - scheduled);
    assert!(took.is_some_and(|took| took < 30_000), "at once, not at the end of the budget: {took:?} ms");
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
