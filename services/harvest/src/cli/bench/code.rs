//! The workflows and activities that are measured, and the worker that runs them.

use anyhow::Context as _;
use harvest_runtime::{Clock as _, Shutdown, SystemClock};
use harvest_sdk::prelude::*;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// The queue of the benchmark.
pub const QUEUE: &str = "bench";
/// The queue of activities that wait for a worker.
pub const WAITING_QUEUE: &str = "bench-waiting";
/// How long [`asleep`] sleeps.
pub const SLEEP: Duration = Duration::from_secs(24 * 3600);
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

/// One activity attempt that was handed to a worker, as it is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOut {
    /// The run.
    pub execution_id: Uuid,
    /// The activity's number in the run.
    pub activity_id: u64,
    /// When, on the worker's monotonic clock.
    pub at: Duration,
}

impl HandOut {
    /// Bytes of one in a record.
    pub const BYTES: usize = 32;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(self.execution_id.as_bytes());
        bytes[16..24].copy_from_slice(&self.activity_id.to_be_bytes());
        bytes[24..].copy_from_slice(&u64::try_from(self.at.as_micros()).unwrap_or(u64::MAX).to_be_bytes());
        bytes
    }

    /// Reads a record; an unfinished last one is left out.
    pub fn read(bytes: &[u8]) -> Vec<Self> {
        let number = |part: &[u8]| part.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let (whole, _) = bytes.as_chunks::<{ Self::BYTES }>();
        let one = |bytes: &[u8; Self::BYTES]| {
            let execution_id = bytes[..16].iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte));
            Self { execution_id: Uuid::from_u128(execution_id), activity_id: number(&bytes[16..24]), at: Duration::from_micros(number(&bytes[24..])) }
        };
        whole.iter().map(one).collect()
    }
}

/// Where a worker writes down what it is handed.
struct Record {
    file: Mutex<File>,
    clock: SystemClock,
}

/// An activity of a backlog. The worker that drains it writes down that it was handed out.
#[activity(name = "bench_waiting", queue = "bench-waiting", start_to_close = "30s")]
async fn waiting(ctx: &ActivityContext, number: u64) -> Result<u64, String> {
    if let Some(record) = ctx.state::<Record>() {
        let execution_id = Uuid::parse_str(&ctx.info().execution_id).map_err(|error| error.to_string())?;
        let line = HandOut { execution_id, activity_id: ctx.info().activity_id, at: record.clock.monotonic() };
        let written = record.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line.to_bytes());
        written.map_err(|error| format!("the record cannot be written: {error}"))?;
    }
    Ok(number)
}

/// Asks for so many activities at once, in a queue of their own, and counts them as they end.
#[workflow(name = "bench_fan_out", execution_timeout = "7d")]
pub async fn fan_out(ctx: &WorkflowContext, count: u64) -> Result<u64, HarvestError> {
    let asked: Vec<_> = (0..count).map(|number| ctx.execute_activity(&waiting, number)).collect();
    let mut ended = 0;
    for activity in asked {
        activity.await?;
        ended += 1;
    }
    Ok(ended)
}

/// Sleeps for a day.
#[workflow(name = "bench_asleep", execution_timeout = "7d")]
pub async fn asleep(ctx: &WorkflowContext, number: u64) -> Result<u64, HarvestError> {
    ctx.timer("day", SLEEP).await?;
    Ok(number)
}

/// Serves a queue until the shutdown, the benchmark's unless another is named. Writes down what activities of a backlog it is handed, when asked to.
///
/// # Errors
/// When the worker cannot be built or is refused.
pub async fn work(address: &str, queue: Option<&str>, record: Option<&Path>, shutdown: Shutdown) -> anyhow::Result<()> {
    let mut worker = HarvestBuilder::new()
        .workflows(workflows![no_step, one_activity, three_activities, one_timer, signals, sustained, fan_out, asleep])
        .activities(activities![add_one, waiting])
        .worker(WorkerConfig::default().with_addresses([address]).with_queues([queue.unwrap_or(QUEUE)]));
    if let Some(path) = record {
        let file = File::options().create(true).append(true).open(path).with_context(|| format!("{} cannot be written", path.display()))?;
        worker = worker.state(Record { file: Mutex::new(file), clock: SystemClock::new() });
    }
    let worker = worker.build()?;
    worker.run(async move { shutdown.begun().await }).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let one = HandOut { execution_id: Uuid::from_u128(7 << 100), activity_id: 258, at: Duration::from_micros(1_234_567) };
        let other = HandOut { activity_id: 3, ..one };
        let bytes = [one.to_bytes().as_slice(), &other.to_bytes(), &[1, 2, 3]].concat();
        assert_eq!(HandOut::read(&bytes), [one, other]);
    }
}
