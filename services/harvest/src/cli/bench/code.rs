//! The workflows and activities that are measured, and the worker that runs them.

use harvest_runtime::Shutdown;
use harvest_sdk::prelude::*;
use std::time::Duration;

/// The queue of the benchmark.
pub const QUEUE: &str = "bench";
/// The signal that runs wait for.
pub const SIGNAL: &str = "go";
/// The timer of [`one_timer`].
pub const TIMER: Duration = Duration::from_secs(1);
/// A signal of this value ends [`sustained`].
pub const LAST: u64 = u64::MAX;

/// Adds one: the least that an activity can do and still show that it was done.
#[activity(start_to_close = "30s")]
async fn add_one(_ctx: &ActivityContext, number: u64) -> Result<u64, String> {
    Ok(number + 1)
}

/// W1: ends at once.
#[workflow(name = "bench_no_step", execution_timeout = "1h")]
pub async fn no_step(_ctx: &WorkflowContext, number: u64) -> Result<u64, HarvestError> {
    Ok(number)
}

/// A1: one activity.
#[workflow(name = "bench_one_activity", execution_timeout = "1h")]
pub async fn one_activity(ctx: &WorkflowContext, number: u64) -> Result<u64, HarvestError> {
    ctx.execute_activity(&add_one, number).await
}

/// W2: three activities, each with the result of the one before.
#[workflow(name = "bench_three_activities", execution_timeout = "1h")]
pub async fn three_activities(ctx: &WorkflowContext, number: u64) -> Result<u64, HarvestError> {
    let number = ctx.execute_activity(&add_one, number).await?;
    let number = ctx.execute_activity(&add_one, number).await?;
    ctx.execute_activity(&add_one, number).await
}

/// W3: one timer.
#[workflow(name = "bench_one_timer", execution_timeout = "1h")]
pub async fn one_timer(ctx: &WorkflowContext, number: u64) -> Result<u64, HarvestError> {
    ctx.timer("second", TIMER).await?;
    Ok(number)
}

/// W4 and W5: takes so many signals and returns their sum.
#[workflow(name = "bench_signals", execution_timeout = "1h")]
pub async fn signals(ctx: &WorkflowContext, count: u64) -> Result<u64, HarvestError> {
    let mut sum = 0;
    for _ in 0..count {
        sum += ctx.receive_signal::<u64>(SIGNAL).await?;
    }
    Ok(sum)
}

/// Takes signals until the last one and returns how many came before it; continues as new when its history grows long.
#[workflow(name = "bench_sustained", execution_timeout = "2h")]
pub async fn sustained(ctx: &WorkflowContext, before: u64) -> Result<u64, HarvestError> {
    let mut taken = before;
    loop {
        if ctx.receive_signal::<u64>(SIGNAL).await? == LAST {
            return Ok(taken);
        }
        taken += 1;
        if ctx.should_continue_as_new() {
            ctx.continue_as_new(taken).await?;
        }
    }
}

/// Serves the benchmark's queue until the shutdown.
///
/// # Errors
/// When the worker cannot be built or is refused.
pub async fn work(address: &str, shutdown: Shutdown) -> anyhow::Result<()> {
    let worker = HarvestBuilder::new()
        .workflows(workflows![no_step, one_activity, three_activities, one_timer, signals, sustained])
        .activities(activities![add_one])
        .worker(WorkerConfig::default().with_addresses([address]).with_queues([QUEUE]))
        .build()?;
    worker.run(async move { shutdown.begun().await }).await?;
    Ok(())
}
