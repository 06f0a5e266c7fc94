//! A queue with many pending tasks that no worker serves: how fast it fills, and how fast, in which order and with how much memory it drains.

use super::code::{HandOut, WAITING_QUEUE};
use super::probe::{Memory, number, wait_until};
use super::report::{Details, Figures, round};
use super::starts::{self, Wave};
use super::{QUEUE, Scene};
use anyhow::{Context as _, bail};
use harvest_ids::ShardId;
use harvest_persistence::measure::Tables;
use harvest_runtime::Clock;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// Clients that start the runs whose activities fill the queue.
const FILLERS: u32 = 64;
/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many tasks of each shard are remembered in their order, beyond those that are drained.
const BEYOND: u64 = 4_000;

/// How large it is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Tasks that are pending when the draining begins.
    pub tasks: u64,
    /// Activities of one run.
    pub per_run: u64,
    /// Tasks that are drained.
    pub drained: u64,
}

impl Size {
    /// So many tasks, of runs with so many each, of which a tenth is drained, at most 20 000.
    pub fn new(tasks: u64, per_run: u64) -> Self {
        let per_run = per_run.min(tasks);
        let tasks = tasks.div_ceil(per_run) * per_run;
        Self { tasks, per_run, drained: (tasks / 10).clamp(1, 20_000) }
    }
}

/// What only the backlog has. The unit of the other keys is a task handed out of the full queue.
#[derive(Debug, Clone, Serialize)]
pub struct BacklogFigures {
    tasks: u64,
    runs: u64,
    /// Tasks that became pending in a second.
    fill_per_s: f64,
    /// Tasks handed out in a second, of a queue that held no more than these.
    drain_per_s_near_empty: f64,
    /// The same of the full queue.
    drain_per_s_full: f64,
    /// How many places the task was early that came most before its turn among those of its shard.
    most_places_early: u64,
    /// Tasks handed out that were not among the oldest.
    not_oldest: u64,
    memory_mib: BTreeMap<&'static str, Memory>,
    /// How a page of the full backlog is read, in the shard that has most of it: EXPLAIN (ANALYZE, BUFFERS).
    #[serde(skip)]
    pub plan: Vec<String>,
}

/// Measures one backlog. What is not drained stays.
///
/// # Errors
/// When nothing moves any more, or something cannot be measured.
pub async fn measure(scene: &mut Scene<'_>, size: Size) -> anyhow::Result<Figures> {
    let mut tables = Tables::connect(scene.probe.database_url().context("backlog needs Postgres")?).await?;
    let mut memory = BTreeMap::from([("before", scene.probe.memory_mib())]);
    // The same work on a queue that holds nothing else.
    fill(scene, &mut tables, size.drained.div_ceil(size.per_run), size.per_run).await?;
    let near_empty = Drain::start(scene, "near-empty")?.until(scene, size.drained).await?;
    settle(scene, &mut tables).await?;
    scene.fleet.stop_drain().await?;
    memory.insert("drained_once", scene.probe.memory_mib());
    let filled = fill(scene, &mut tables, size.tasks / size.per_run, size.per_run).await?;
    memory.insert("full", scene.probe.memory_mib());
    let shards = u64::try_from(scene.shards().len())?.max(1);
    let oldest = tables.oldest_activities(WAITING_QUEUE, u32::try_from(2 * size.drained / shards + BEYOND)?).await?;
    let mut places: HashMap<(Uuid, u64), (ShardId, u64)> = HashMap::new();
    let mut counts: BTreeMap<ShardId, u64> = BTreeMap::new();
    for task in &oldest {
        let place = counts.entry(task.shard_id).or_default();
        places.insert((task.execution_id, task.activity_id), (task.shard_id, *place));
        *place += 1;
    }
    let fullest = counts.iter().max_by_key(|(_, count)| **count).map(|(shard, _)| *shard).context("nothing waits")?;
    let plan = tables.explain_backlog(fullest, WAITING_QUEUE, 500).await?;
    let from = scene.probe.moment().await?;
    let hand_outs = Drain::start(scene, "full")?.until(scene, size.drained).await?;
    let until = scene.probe.moment().await?;
    memory.insert("drained", scene.probe.memory_mib());
    scene.fleet.stop_drain().await?;
    scene.probe.watch(scene.fleet.processes());
    let usage = scene.probe.usage(&from, &until).await?;
    let (most_places_early, not_oldest) = order(&hand_outs, &places);
    let details = BacklogFigures {
        tasks: size.tasks,
        runs: size.tasks / size.per_run,
        fill_per_s: round(filled),
        drain_per_s_near_empty: round(rate(&near_empty, size.drained)),
        drain_per_s_full: round(rate(&hand_outs, size.drained)),
        most_places_early,
        not_oldest,
        memory_mib: memory,
        plan,
    };
    let figures = Figures::of("backlog", 1, u64::try_from(hand_outs.len())?, Vec::new(), &usage, scene.idle);
    Ok(Figures { details: Some(Details::Backlog(details)), ..figures })
}

/// Starts runs and waits until all their activities are pending. Returns how many became so in a second.
async fn fill(scene: &Scene<'_>, tables: &mut Tables, runs: u64, per_run: u64) -> anyhow::Result<f64> {
    let clock = scene.probe.clock();
    let begun = clock.monotonic();
    let target = tables.pending_tasks(WAITING_QUEUE).await? + runs * per_run;
    let wave = Wave { workflow_type: "bench_fan_out", count: runs, clients: FILLERS, input: Some(per_run) };
    starts::run(scene.load, scene.fleet.address(), &wave, &clock, "backlog: runs", scene.progress).await?.complete()?;
    let (mut pending, mut moved) = (0, clock.monotonic());
    while pending < target {
        let now = tables.pending_tasks(WAITING_QUEUE).await?;
        scene.progress.counting("backlog: pending", now, target);
        if now != pending {
            (pending, moved) = (now, clock.monotonic());
        } else if clock.monotonic().saturating_sub(moved) > PATIENCE {
            bail!("{pending} of {target} tasks are pending, and no more");
        }
        clock.sleep(Duration::from_millis(100)).await;
    }
    Ok(number(runs * per_run) / clock.monotonic().saturating_sub(begun).as_secs_f64())
}

/// Waits until neither queue has a task.
async fn settle(scene: &Scene<'_>, tables: &mut Tables) -> anyhow::Result<()> {
    let (clock, tables) = (scene.probe.clock(), tokio::sync::Mutex::new(tables));
    wait_until(&clock, "the queues to be empty", PATIENCE, || async {
        let mut tables = tables.lock().await;
        tables.pending_tasks(WAITING_QUEUE).await.is_ok_and(|count| count == 0) && tables.pending_tasks(QUEUE).await.is_ok_and(|count| count == 0)
    })
    .await
}

/// A worker at the queue.
struct Drain {
    record: PathBuf,
}

impl Drain {
    fn start(scene: &mut Scene<'_>, name: &str) -> anyhow::Result<Self> {
        let record = scene.folder.join(format!("{name}.record"));
        scene.fleet.start_drain(WAITING_QUEUE, &record)?;
        scene.probe.watch(scene.fleet.processes());
        Ok(Self { record })
    }

    /// Waits until it has been handed so many tasks; all that it has been handed, each once.
    async fn until(self, scene: &Scene<'_>, count: u64) -> anyhow::Result<Vec<HandOut>> {
        let clock = scene.probe.clock();
        let (mut seen, mut moved) = (0, clock.monotonic());
        while seen < count {
            clock.sleep(Duration::from_millis(20)).await;
            let bytes = tokio::fs::metadata(&self.record).await.map_or(0, |file| file.len());
            let now = bytes / u64::try_from(HandOut::BYTES)?;
            scene.progress.counting("backlog: drained", now, count);
            if now != seen {
                (seen, moved) = (now, clock.monotonic());
            } else if clock.monotonic().saturating_sub(moved) > PATIENCE {
                bail!("{seen} of {count} tasks were handed out, and no more");
            }
        }
        let (bytes, mut known) = (tokio::fs::read(&self.record).await?, BTreeSet::new());
        let once = |line: &HandOut| known.insert((line.execution_id, line.activity_id));
        Ok(HandOut::read(&bytes).into_iter().filter(once).collect())
    }
}

/// Tasks a second between the first twentieth of those that are drained and the last: without the worker's beginning and the queue's end.
fn rate(hand_outs: &[HandOut], drained: u64) -> f64 {
    let of = hand_outs.len().min(usize::try_from(drained).unwrap_or(usize::MAX));
    let (first, last) = (of / 20, of - of.div_ceil(20));
    match (hand_outs.get(first), hand_outs.get(last)) {
        (Some(begin), Some(end)) if end.at > begin.at => number(last - first) / (end.at - begin.at).as_secs_f64(),
        _ => 0.0,
    }
}

/// How far the task came before its turn that came most before it, and how many were not even among those whose places are known.
fn order(hand_outs: &[HandOut], places: &HashMap<(Uuid, u64), (ShardId, u64)>) -> (u64, u64) {
    let (mut most, mut unknown) = (0, 0);
    let mut handed_out: BTreeMap<ShardId, u64> = BTreeMap::new();
    for line in hand_outs {
        match places.get(&(line.execution_id, line.activity_id)) {
            Some((shard, place)) => {
                let turn = handed_out.entry(*shard).or_default();
                most = most.max(place.saturating_sub(*turn));
                *turn += 1;
            }
            None => unknown += 1,
        }
    }
    (most, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(activity_id: u64, at_ms: u64) -> HandOut {
        HandOut { execution_id: Uuid::nil(), activity_id, at: Duration::from_millis(at_ms) }
    }

    #[test]
    fn places_early_are_counted_within_each_shard() {
        let places = HashMap::from([
            ((Uuid::nil(), 1), (ShardId(0), 0)),
            ((Uuid::nil(), 2), (ShardId(0), 1)),
            ((Uuid::nil(), 3), (ShardId(0), 2)),
            ((Uuid::nil(), 4), (ShardId(1), 0)),
        ]);
        assert_eq!(order(&[line(1, 0), line(4, 0), line(2, 0), line(3, 0)], &places), (0, 0));
        assert_eq!(order(&[line(3, 0), line(1, 0), line(9, 0), line(2, 0)], &places), (2, 1));
    }

    #[test]
    fn the_rate_leaves_out_both_ends() {
        let lines: Vec<HandOut> = (0..100).map(|place| line(place, if place < 5 { 0 } else { 1000 + place * 10 })).collect();
        assert!((rate(&lines, 100) - 100.0).abs() < 0.01);
        assert!((rate(&lines[..1], 100)).abs() < 0.01);
    }

    #[test]
    fn a_tenth_is_drained_and_runs_are_whole() {
        let size = Size::new(1_050, 100);
        assert_eq!((size.tasks, size.per_run, size.drained), (1_100, 100, 110));
        assert_eq!((Size::new(3, 100).tasks, Size::new(1_000_000, 100).drained), (3, 20_000));
    }
}
