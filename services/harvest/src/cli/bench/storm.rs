//! A storm of starts: as many as are taken, by many clients at once, and then all results.

use super::Scene;
use super::probe::Memory;
use super::report::{Details, Figures, round};
use super::starts::{self, Started, Wave};
use anyhow::bail;
use harvest_runtime::Clock;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// Clients that fetch results at once.
const FETCHERS: usize = 64;

/// What only the storm has. `p50_ms` and `p99_ms` are those of the starts.
#[derive(Debug, Clone, Serialize)]
pub struct StormFigures {
    runs: u64,
    clients: u32,
    /// Accepted starts per second, until the last one was accepted.
    starts_per_s: f64,
    /// From the first start until every result had been fetched, seconds.
    all_results_s: f64,
    /// Tries that were refused and repeated, by reason.
    retried: BTreeMap<&'static str, u64>,
    /// Starts that were given up, by reason.
    failed: BTreeMap<&'static str, u64>,
    memory_mib: BTreeMap<&'static str, Memory>,
}

/// Measures one storm of `runs` starts of W1 runs.
///
/// # Errors
/// When a run that was started has no result or a wrong one, or something cannot be measured.
pub async fn measure(scene: &mut Scene<'_>, runs: u64, clients: u32) -> anyhow::Result<Figures> {
    let clock = scene.probe.clock();
    let before = scene.probe.memory_mib();
    let from = scene.probe.moment().await?;
    let wave = Wave { workflow_type: "bench_no_step", count: runs, clients, input: None };
    let outcome = starts::run(scene.load, scene.fleet.address(), &wave, &clock, "storm: starts", scene.progress).await?;
    fetch(scene, &outcome.started).await?;
    let took = clock.monotonic().saturating_sub(from.at());
    let until = scene.probe.moment().await?;
    let usage = scene.probe.usage(&from, &until).await?;
    let accepted = outcome.started.len();
    let details = StormFigures {
        runs,
        clients,
        starts_per_s: round(super::probe::number(accepted) / outcome.took.as_secs_f64()),
        all_results_s: round(took.as_secs_f64()),
        retried: outcome.retried,
        failed: outcome.failed,
        memory_mib: [("before", before), ("after", scene.probe.memory_mib())].into(),
    };
    let figures = Figures::of("storm", clients, u64::try_from(accepted)?, outcome.times_ms, &usage, scene.idle);
    Ok(Figures { details: Some(Details::Storm(details)), ..figures })
}

/// Fetches the result of each run and compares it with its input.
async fn fetch(scene: &Scene<'_>, started: &[Started]) -> anyhow::Result<()> {
    let (clock, all) = (scene.probe.clock(), u64::try_from(started.len())?);
    // Those that were started first have ended first: nobody waits for a late one while others could be fetched.
    let mut oldest_last = started.to_vec();
    oldest_last.sort_by_key(|run| std::cmp::Reverse(run.input));
    let left = Arc::new(Mutex::new(oldest_last));
    let mut tasks = JoinSet::new();
    for _ in 0..FETCHERS {
        let (left, client) = (left.clone(), scene.load.client().clone());
        tasks.spawn(async move {
            loop {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some(run) = next else { return anyhow::Ok(()) };
                let result: u64 = client.handle_of_execution(&run.execution_id).result().await?;
                if result != run.input {
                    bail!("run {} returned {result} instead of {}", run.execution_id, run.input);
                }
            }
        });
    }
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended??,
                None => return Ok(()),
            },
            () = clock.sleep(Duration::from_millis(250)) => {
                let left = left.lock().unwrap_or_else(PoisonError::into_inner).len();
                scene.progress.counting("storm: results", all.saturating_sub(u64::try_from(left)?), all);
            }
        }
    }
}
