//! The owner of shards is stopped in order under load: how long the runs of its shards stand still.

use super::fleet::Fleet;
use super::load::Load;
use super::ownership::{PATIENCE, ShardClients, busiest};
use super::probe::{Probe, wait_until};
use super::progress::Progress;
use super::report::Figures;
use super::takeover::figures;
use harvest_persistence::control::DirectoryStore;
use harvest_runtime::Clock;
use std::time::Duration;

/// Stops owners with SIGTERM until the time is over, at least three times. One client per shard runs one-activity runs; a shard's figure is the
/// longest time between two of its results from the signal until its next owner is at work.
///
/// # Errors
/// When a run fails, nobody takes the shards, or a process does not end or does not come back.
pub async fn measure(load: &Load, fleet: &mut Fleet, probe: &mut Probe, span: Duration, progress: &Progress) -> anyhow::Result<Figures> {
    let mut clients = ShardClients::start(load, probe).await?;
    let clock = probe.clock();
    let (begun, mut times, mut stops) = (clock.monotonic(), Vec::new(), 0u32);
    while stops < 3 || clock.monotonic().saturating_sub(begun) < span {
        clients.settle("handover", progress).await?;
        let (port, handed) = busiest(&clients.store).await?;
        clients.forget_pauses();
        fleet.stop_history(port).await?;
        stops += 1;
        progress.step(&format!("handover: stop {stops}, an owner of {} shards", handed.len()));
        let suffix = format!(":{port}");
        wait_until(&clock, "the shards to have other owners", PATIENCE, || async {
            let leases = clients.store.leases().await.unwrap_or_default();
            let others = |lease: &harvest_persistence::control::Lease| lease.address.as_ref().is_some_and(|address| !address.ends_with(&suffix));
            handed.iter().all(|shard| leases.iter().any(|lease| lease.shard_id == *shard && others(lease)))
        })
        .await?;
        // What ended before it came to its new owner would hide how long the rest stood still.
        clients.all_work().await?;
        let ends = clients.ends().clone();
        times.extend(handed.iter().filter_map(|shard| ends.get(shard)).map(|ends| ends.longest_pause.as_secs_f64() * 1_000.0));
        fleet.restart_history(port).await?;
    }
    figures("handover", clients, times).await
}
