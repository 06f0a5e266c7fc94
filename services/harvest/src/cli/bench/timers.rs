//! W3: 500 runs with a timer of one second at once, and how late the timers fire.

use super::code::{self, TIMER};
use super::load::{Load, expect};
use super::probe::{Probe, Rates, milliseconds, number};
use super::progress::Progress;
use super::report::{Figures, percentiles};
use anyhow::Context as _;
use harvest_persistence::measure::commit_times;
use harvest_proto::v1::event::Kind;
use harvest_runtime::Clock;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use uuid::Uuid;

/// Runs at once.
const RUNS: u32 = 500;
/// Runs whose timers are looked at: the last ones.
const LOOKED_AT: usize = 2_000;

/// Measures rounds of 500 runs until the time is over.
///
/// # Errors
/// When a run fails or something cannot be measured.
pub async fn measure(load: &Load, span: Duration, probe: &mut Probe, idle: &Rates, progress: &Progress) -> anyhow::Result<Figures> {
    round(load, probe).await?; // warm up
    let from = probe.moment().await?;
    let mut done = Vec::new();
    loop {
        done.extend(round(load, probe).await?);
        let elapsed = probe.clock().monotonic().saturating_sub(from.at());
        progress.running("W3", elapsed, span, u64::try_from(done.len())?);
        if elapsed >= span {
            break;
        }
    }
    let until = probe.moment().await?;
    let usage = probe.usage(&from, &until).await?;
    let times = done.iter().map(|(_, took_ms)| *took_ms).collect();
    let mut figures = Figures::of("W3", RUNS, u64::try_from(done.len())?, times, &usage, idle);
    progress.step("W3: reading when timers fired");
    let runs: Vec<Uuid> = done.iter().rev().take(LOOKED_AT).map(|(run, _)| *run).collect();
    figures.timer_late_ms = percentiles(lateness(load, probe.database_url(), &runs).await?);
    Ok(figures)
}

/// Starts all runs and waits for all: each run's id and how long it took, in milliseconds.
async fn round(load: &Load, probe: &Probe) -> anyhow::Result<Vec<(Uuid, f64)>> {
    let mut tasks = JoinSet::new();
    for _ in 0..RUNS {
        let (load, clock) = (load.clone(), probe.clock());
        tasks.spawn(async move {
            let begun = clock.monotonic();
            let value = load.number();
            let handle = load.client().start(&code::one_timer, Load::options(format!("W3-{value}")), value).await?;
            expect(&handle, value).await?;
            anyhow::Ok((Uuid::parse_str(handle.execution_id())?, milliseconds(begun, clock.monotonic())?))
        });
    }
    let mut done = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        done.push(ended??);
    }
    Ok(done)
}

/// A timer of a run.
#[derive(Default)]
struct Timer {
    due_ms: i64,
    fired_event: i64,
    decided_ms: i64,
}

/// How many milliseconds after its due time each run's timer was durable. Without Postgres: was decided.
async fn lateness(load: &Load, database: Option<&str>, runs: &[Uuid]) -> anyhow::Result<Vec<f64>> {
    let mut timers = BTreeMap::new();
    for run in runs {
        timers.insert(*run, timer(load, run).await?);
    }
    let Some(database) = database else {
        return Ok(timers.values().map(|timer| number(timer.decided_ms - timer.due_ms)).collect());
    };
    let mut late = Vec::new();
    for commit in commit_times(database, runs).await? {
        let timer = timers.get(&commit.execution_id).context("a run that was not asked for")?;
        if (commit.first_event..commit.first_event + commit.event_count).contains(&timer.fired_event) {
            // The due time is a whole number of milliseconds since 1970, which a double holds exactly.
            late.push(commit.at_ms - whole(timer.due_ms));
        }
    }
    Ok(late)
}

/// Milliseconds since 1970 as a double: below 2^53 for 285 000 years.
fn whole(at_ms: i64) -> f64 {
    Duration::from_millis(u64::try_from(at_ms).unwrap_or(0)).as_secs_f64() * 1e3
}

async fn timer(load: &Load, run: &Uuid) -> anyhow::Result<Timer> {
    let mut timer = Timer::default();
    for event in load.client().handle_of_execution::<u64>(&run.to_string()).history().await? {
        match event.kind {
            Some(Kind::TimerStarted(_)) => timer.due_ms = event.at_ms + i64::try_from(TIMER.as_millis())?,
            Some(Kind::TimerFired(_)) => (timer.fired_event, timer.decided_ms) = (i64::try_from(event.event_id)?, event.at_ms),
            _ => {}
        }
    }
    Ok(timer)
}
