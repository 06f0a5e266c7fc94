//! The owner of shards is killed under load: how long until runs of its shards progress again.

use super::fleet::Fleet;
use super::load::Load;
use super::ownership::{PATIENCE, ShardClients, busiest};
use super::probe::{Probe, Usage, milliseconds, wait_until};
use super::progress::Progress;
use super::report::{Figures, percentiles};
use anyhow::Context as _;
use harvest_ids::ShardId;
use harvest_runtime::Clock;
use std::collections::BTreeMap;
use std::time::Duration;

/// Answers that were under way when the owner died may arrive for so long: they are not progress.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// Kills owners until the time is over, at least three times. One client per shard runs one-activity runs.
///
/// # Errors
/// When a run fails, nobody takes over, or a process does not come back.
pub async fn measure(load: &Load, fleet: &mut Fleet, probe: &mut Probe, span: Duration, progress: &Progress) -> anyhow::Result<Figures> {
    let mut clients = ShardClients::start(load, probe).await?;
    let clock = probe.clock();
    let (begun, mut times, mut kills) = (clock.monotonic(), Vec::new(), 0u32);
    while kills < 3 || clock.monotonic().saturating_sub(begun) < span {
        clients.settle("takeover", progress).await?;
        let (port, taken) = busiest(&clients.store).await?;
        let killed_at = clock.monotonic();
        fleet.kill_history(port).await?;
        kills += 1;
        progress.step(&format!("takeover: kill {kills}, an owner of {} shards", taken.len()));
        // The first end after the kill would be overwritten by later ones: look at it as it comes.
        let mut first: BTreeMap<ShardId, Duration> = BTreeMap::new();
        wait_until(&clock, "runs of the killed owner's shards to progress", PATIENCE, || {
            for (shard, ends) in clients.ends().iter().filter(|(_, ends)| ends.last > killed_at + UNDER_WAY) {
                first.entry(*shard).or_insert(ends.last);
            }
            std::future::ready(taken.iter().all(|shard| first.contains_key(shard)))
        })
        .await?;
        for shard in &taken {
            times.push(milliseconds(killed_at, *first.get(shard).context("a shard without progress")?)?);
        }
        fleet.restart_history(port).await?;
    }
    figures("takeover", clients, times).await
}

/// The figures of shards that changed hands, each with how long it stood still.
pub(super) async fn figures(name: &'static str, clients: ShardClients, times: Vec<f64>) -> anyhow::Result<Figures> {
    let shards = u32::try_from(clients.shards.len())?;
    clients.stop().await?;
    let (count, percentiles) = (u64::try_from(times.len())?, percentiles(times.clone()));
    let usage = Usage { seconds: 1.0, ..Usage::default() };
    let figures = Figures::of(name, shards, count, times, &usage, &super::Rates::default());
    Ok(Figures { runs_per_s: None, p99_ms: percentiles.map(|times| times.p99), ..figures })
}
