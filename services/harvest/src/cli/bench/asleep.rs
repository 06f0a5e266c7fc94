//! Many open runs asleep: what they cost at rest, and how many of them a new owner reads.

use super::ownership::{busiest, key_in};
use super::probe::{Memory, wait_until};
use super::report::{Details, Figures, round};
use super::starts::{self, Wave};
use super::{Scene, code};
use anyhow::Context as _;
use harvest_ids::ShardId;
use harvest_persistence::measure::Tables;
use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_runtime::Clock;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;

/// Clients that start the runs.
const CLIENTS: u32 = 64;
/// How long the runs may take to fall asleep, and their shards to be at work again after a kill.
const PATIENCE: Duration = Duration::from_secs(60);
/// For how long after the kill statements are counted: what a new owner reads, it has read by then.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// What only sleeping runs have. The unit of the other keys is a run that was put to sleep.
#[derive(Debug, Clone, Serialize)]
pub struct AsleepFigures {
    runs: u64,
    /// Statements a second of the fleet with these runs and nothing to do.
    idle_statements_per_s: f64,
    /// The same before there were any.
    idle_statements_per_s_before: f64,
    /// Shards whose owner was killed.
    shards_killed: u64,
    /// From the kill until a new run of each shard had ended, milliseconds; the owner's restart included where no other process takes over.
    back_ms: f64,
    /// Runs that were read from the store since the kill.
    runs_loaded: i64,
    /// All statements since the kill, for ten seconds at least.
    statements_after_kill: i64,
    memory_mib: BTreeMap<&'static str, Memory>,
}

/// Measures so many runs asleep. They stay.
///
/// # Errors
/// When they do not fall asleep, nobody takes over, or something cannot be measured.
pub async fn measure(scene: &mut Scene<'_>, runs: u64, rest: Duration) -> anyhow::Result<Figures> {
    let url = scene.probe.database_url().context("asleep needs Postgres")?.to_owned();
    let mut tables = Tables::connect(&url).await?;
    let clock = scene.probe.clock();
    let mut memory = BTreeMap::from([("before", scene.probe.memory_mib())]);
    let from = scene.probe.moment().await?;
    let wave = Wave { workflow_type: "bench_asleep", count: runs, clients: CLIENTS, input: None };
    let outcome = starts::run(scene.load, scene.fleet.address(), &wave, &clock, "asleep: runs", scene.progress).await?.complete()?;
    let counting = tokio::sync::Mutex::new(&mut tables);
    let asleep = || async { counting.lock().await.pending_tasks(super::QUEUE).await.is_ok_and(|pending| pending == 0) };
    wait_until(&clock, "all runs to be asleep", PATIENCE, asleep).await?;
    let until = scene.probe.moment().await?;
    let usage = scene.probe.usage(&from, &until).await?;
    memory.insert("asleep", scene.probe.memory_mib());
    scene.progress.step("asleep: at rest");
    let rates = scene.probe.idle(super::SETTLE, rest).await?;
    let after = after_kill(scene, &url).await?;
    memory.insert("after_kill", scene.probe.memory_mib());
    let details = AsleepFigures {
        runs,
        idle_statements_per_s: round(rates.statements.values().sum()),
        idle_statements_per_s_before: round(scene.idle.statements.values().sum()),
        shards_killed: after.shards,
        back_ms: after.back_ms,
        runs_loaded: after.runs_loaded,
        statements_after_kill: after.statements,
        memory_mib: memory,
    };
    let figures = Figures::of("asleep", CLIENTS, runs, outcome.times_ms, &usage, scene.idle);
    Ok(Figures { details: Some(Details::Asleep(details)), ..figures })
}

struct AfterKill {
    shards: u64,
    back_ms: f64,
    runs_loaded: i64,
    statements: i64,
}

/// Kills the process that owns most shards and waits until all its shards are at work again.
async fn after_kill(scene: &mut Scene<'_>, url: &str) -> anyhow::Result<AfterKill> {
    let store = PgStore::connect(url, PgOptions { max_sessions: 1, ..PgOptions::default() }).await?;
    let clock = scene.probe.clock();
    let (port, taken) = busiest(&store).await?;
    let from = scene.probe.moment().await?;
    scene.progress.step("asleep: killing an owner");
    let killed_at = clock.monotonic();
    scene.fleet.crash_owner(port).await?;
    let slots = scene.slots().await?;
    let mut tasks = JoinSet::new();
    for shard in &taken {
        tasks.spawn(one_run(scene.load.clone(), slots.clone(), *shard));
    }
    let ended = tokio::time::timeout(PATIENCE, async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        anyhow::Ok(())
    });
    ended.await.context("the killed owner's shards are not at work again")??;
    let back = clock.monotonic().saturating_sub(killed_at);
    scene.fleet.ready().await?;
    clock.sleep(AFTER_KILL.saturating_sub(clock.monotonic().saturating_sub(killed_at))).await;
    scene.probe.watch(scene.fleet.processes());
    let until = scene.probe.moment().await?;
    let spent = scene.probe.usage(&from, &until).await?.spent.unwrap_or_default();
    let shards = u64::try_from(taken.len())?;
    Ok(AfterKill { shards, back_ms: round(back.as_secs_f64() * 1e3), runs_loaded: spent.loaded_runs(), statements: spent.statement_calls() })
}

/// A run that ends at once, in one shard.
async fn one_run(load: super::Load, slots: std::sync::Arc<Vec<ShardId>>, shard: ShardId) -> anyhow::Result<()> {
    let (value, workflow_id) = key_in(&load, &slots, shard)?;
    super::load::expect(&load.client().start(&code::no_step, super::Load::options(workflow_id), value).await?, value).await
}
