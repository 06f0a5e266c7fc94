//! Hours of ordinary work: does a run cost more, or a process hold more memory, at the end than at the beginning?

use super::load::{Clients, within};
use super::probe::{Memory, Usage};
use super::report::{Details, Figures, percentiles, round};
use super::{Scene, Workload, starts};
use anyhow::{Context as _, bail};
use harvest_persistence::measure::Tables;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What clients do in turn. Most of it is W2.
const MIX: [Workload; 6] = [Workload::W2, Workload::W2, Workload::W4, Workload::W2, Workload::W2, Workload::W1];
/// Parts of the time that are measured one by one.
const PARTS: u32 = 10;
/// Runs per shard that are done so that closed runs can be copied from them.
const ORIGINALS: u64 = 16;
/// How long the mix runs before the first part begins.
const WARM_UP: Duration = Duration::from_secs(5);

/// What only the soak has.
#[derive(Debug, Clone, Serialize)]
pub struct SoakFigures {
    minutes: f64,
    /// Closed runs that were in the tables before it began.
    closed_runs: u64,
    /// By how many per cent the last tenth was above the first.
    growth_percent: Growth,
    tenths: Vec<Tenth>,
}

/// The last tenth compared with the first, per cent; `None` when the first had nothing.
#[derive(Debug, Clone, Serialize)]
struct Growth {
    /// CPU time per run of all processes but the client and the worker.
    cpu_per_run: Option<f64>,
    /// Statements per run.
    statements_per_run: Option<f64>,
    memory: BTreeMap<&'static str, Option<f64>>,
}

/// A tenth of the time.
#[derive(Debug, Clone, Serialize)]
struct Tenth {
    runs_per_s: Option<f64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// CPU seconds per 1 000 runs of all processes but the client and the worker.
    fleet_cpu_s_per_1000_runs: f64,
    cpu_s_per_1000_runs: BTreeMap<&'static str, f64>,
    statements_per_run: Option<f64>,
    wal_bytes_per_run: Option<f64>,
    /// At its end.
    memory_mib: Memory,
}

/// Measures so long a soak, after the tables were filled with so many closed runs.
///
/// # Errors
/// When a run fails or something cannot be measured.
pub async fn measure(scene: &mut Scene<'_>, span: Duration, concurrency: u32, closed_runs: u64) -> anyhow::Result<Figures> {
    if closed_runs > 0 {
        prefill(scene, closed_runs).await?;
    }
    let turn = Arc::new(AtomicUsize::new(0));
    let load = scene.load.clone();
    let mut clients = Clients::start(scene.probe.clock(), concurrency, move || {
        let (load, workload) = (load.clone(), MIX[turn.fetch_add(1, Ordering::Relaxed) % MIX.len()]);
        async move { load.one(workload).await.map(|()| true) }
    });
    let begun = scene.probe.moment().await?;
    clients.work("soak: warming up", WARM_UP.min(span), scene.progress).await?;
    let mut from = scene.probe.moment().await?;
    // Reading the WAL costs the server time. Every part begins with one reading, so that none has more of it than another.
    scene.probe.usage(&begun, &from).await?;
    let (mut edges, mut usages, mut memories) = (vec![from.at()], Vec::new(), Vec::new());
    for part in 1..=PARTS {
        clients.work(&format!("soak: part {part} of {PARTS}"), span / PARTS, scene.progress).await?;
        let until = scene.probe.moment().await?;
        memories.push(scene.probe.memory_mib());
        usages.push(scene.probe.usage(&from, &until).await?);
        edges.push(until.at());
        from = until;
    }
    let samples = clients.stop().await?;
    let mut tenths = Vec::new();
    for ((edge, usage), memory) in edges.windows(2).zip(&usages).zip(memories) {
        let &[from, until] = edge else { bail!("a part without an end") };
        tenths.push(tenth(concurrency, within(&samples, from, until), usage, memory, scene)?);
    }
    let mut all = Usage::default();
    usages.iter().for_each(|usage| all.add(usage));
    let times = within(&samples, edges[0], *edges.last().context("a soak without an end")?);
    let details = SoakFigures { minutes: round(span.as_secs_f64() / 60.0), closed_runs, growth_percent: growth(&tenths)?, tenths };
    let figures = Figures::of("soak", concurrency, u64::try_from(times.len())?, times, &all, scene.idle);
    Ok(Figures { details: Some(Details::Soak(details)), ..figures })
}

fn tenth(concurrency: u32, times: Vec<f64>, usage: &Usage, memory_mib: Memory, scene: &Scene<'_>) -> anyhow::Result<Tenth> {
    let percentiles = percentiles(times.clone());
    let figures = Figures::of("soak", concurrency, u64::try_from(times.len())?, Vec::new(), usage, scene.idle);
    let fleet = figures.cpu_s_per_1000_runs.iter().filter(|(name, _)| !["client", "worker"].contains(name));
    Ok(Tenth {
        runs_per_s: figures.runs_per_s,
        p50_ms: percentiles.map(|times| times.p50),
        p99_ms: percentiles.map(|times| times.p99),
        fleet_cpu_s_per_1000_runs: round(fleet.map(|(_, used)| used).sum()),
        statements_per_run: figures.statements_per_run,
        wal_bytes_per_run: figures.wal_bytes_per_run,
        cpu_s_per_1000_runs: figures.cpu_s_per_1000_runs,
        memory_mib,
    })
}

fn growth(tenths: &[Tenth]) -> anyhow::Result<Growth> {
    let (first, last) = (tenths.first().context("a soak without parts")?, tenths.last().context("a soak without parts")?);
    let percent = |before: f64, after: f64| (before > 0.0).then(|| round((after / before - 1.0) * 100.0));
    let memory = first.memory_mib.iter().map(|(name, before)| (*name, percent(*before, last.memory_mib.get(name).copied().unwrap_or(0.0))));
    Ok(Growth {
        cpu_per_run: percent(first.fleet_cpu_s_per_1000_runs, last.fleet_cpu_s_per_1000_runs),
        statements_per_run: first.statements_per_run.zip(last.statements_per_run).and_then(|(before, after)| percent(before, after)),
        memory: memory.collect(),
    })
}

/// Fills the tables with copies of runs that were really done.
async fn prefill(scene: &Scene<'_>, count: u64) -> anyhow::Result<()> {
    let (clock, shards) = (scene.probe.clock(), scene.shards());
    let mut tables = Tables::connect(scene.probe.database_url().context("--closed-runs needs Postgres")?).await?;
    let wave = starts::Wave { workflow_type: "bench_no_step", count: ORIGINALS * u64::try_from(shards.len())?, clients: 16, input: None };
    let outcome = starts::run(scene.load, scene.fleet.address(), &wave, &clock, "soak: originals", scene.progress).await?.complete()?;
    for run in outcome.started {
        scene.load.client().handle_of_execution::<u64>(&run.execution_id).result().await?;
    }
    // In portions, for the progress.
    let (portion, mut done) = (50_000, 0);
    while done < count {
        let next = portion.min(count - done);
        let made = tables.copy_closed_runs(&shards, wave.workflow_type, done, next).await?;
        if made != next {
            bail!("{made} closed runs were made instead of {next}: a shard has no run to copy from");
        }
        done += next;
        scene.progress.counting("soak: closed runs", done, count);
    }
    tables.vacuum().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(cpu: f64, statements: Option<f64>, memory: f64) -> Tenth {
        Tenth {
            runs_per_s: None,
            p50_ms: None,
            p99_ms: None,
            fleet_cpu_s_per_1000_runs: cpu,
            cpu_s_per_1000_runs: BTreeMap::new(),
            statements_per_run: statements,
            wal_bytes_per_run: None,
            memory_mib: [("engine", memory)].into(),
        }
    }

    #[test]
    fn growth_is_that_of_the_last_part_over_the_first() {
        let growth = growth(&[part(2.0, None, 100.0), part(9.0, None, 500.0), part(2.1, None, 110.0)]).unwrap();
        assert_eq!((growth.cpu_per_run, growth.statements_per_run, growth.memory["engine"]), (Some(5.0), None, Some(10.0)));
    }
}
