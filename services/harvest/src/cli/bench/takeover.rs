//! The owner of shards is killed under load: how long until runs of its shards progress again.

use super::code;
use super::fleet::Fleet;
use super::load::{Clients, Load, expect};
use super::probe::{Probe, Usage, milliseconds, wait_until};
use super::progress::Progress;
use super::report::{Figures, percentiles};
use anyhow::Context as _;
use harvest_ids::{Namespace, ShardId, Slot, WorkflowId};
use harvest_persistence::control::DirectoryStore;
use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_runtime::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Answers that were under way when the owner died may arrive for so long: they are not progress.
const UNDER_WAY: Duration = Duration::from_millis(100);
/// How long a takeover and the return of the killed process may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Load before each kill.
const LOAD: Duration = Duration::from_secs(2);

/// When a run of each shard last ended, on the monotonic clock.
type Ends = Arc<Mutex<BTreeMap<ShardId, Duration>>>;

/// Kills owners until the time is over, at least three times. One client per shard runs one-activity runs.
///
/// # Errors
/// When a run fails, nobody takes over, or a process does not come back.
pub async fn measure(load: &Load, fleet: &mut Fleet, probe: &mut Probe, span: Duration, progress: &Progress) -> anyhow::Result<Figures> {
    let url = probe.database_url().context("takeover needs Postgres")?;
    let store = PgStore::connect(url, PgOptions { max_sessions: 1, ..PgOptions::default() }).await?;
    let (_, slots) = store.slot_map().await?;
    let slots = Arc::new(slots);
    let shards: BTreeSet<ShardId> = slots.iter().copied().collect();
    let ends = Ends::default();
    let mut clients: Vec<Clients> = shards.iter().map(|shard| client(load, probe, &slots, *shard, &ends)).collect();
    let clock = probe.clock();
    let (begun, mut times, mut kills) = (clock.monotonic(), Vec::new(), 0u32);
    while kills < 3 || clock.monotonic().saturating_sub(begun) < span {
        // The shards are spread, open and at work before the next kill.
        wait_until(&clock, "shards to be spread", PATIENCE, || async { owners(&store).await.is_ok_and(|owners| is_spread(&owners, shards.len())) }).await?;
        let since = clock.monotonic();
        wait_until(&clock, "every shard to be at work", PATIENCE, || std::future::ready(ended_since(&ends, &shards, since))).await?;
        for client in &mut clients {
            client.work("takeover", LOAD / u32::try_from(shards.len())?, progress).await?;
        }
        let (port, taken) = busiest(&store).await?;
        let killed_at = clock.monotonic();
        fleet.kill_history(port).await?;
        kills += 1;
        progress.step(&format!("takeover: kill {kills}, an owner of {} shards", taken.len()));
        // The first end after the kill would be overwritten by later ones: look at it as it comes.
        let mut first: BTreeMap<ShardId, Duration> = BTreeMap::new();
        wait_until(&clock, "runs of the killed owner's shards to progress", PATIENCE, || {
            for (shard, end) in ends.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|(_, end)| **end > killed_at + UNDER_WAY) {
                first.entry(*shard).or_insert(*end);
            }
            std::future::ready(taken.iter().all(|shard| first.contains_key(shard)))
        })
        .await?;
        for shard in &taken {
            times.push(milliseconds(killed_at, *first.get(shard).context("a shard without progress")?)?);
        }
        fleet.restart_history(port).await?;
    }
    for client in clients {
        client.stop().await?;
    }
    let (count, percentiles) = (u64::try_from(times.len())?, percentiles(times.clone()));
    let usage = Usage { seconds: 1.0, ..Usage::default() };
    let figures = Figures::of("takeover", u32::try_from(shards.len())?, count, times, &usage, &super::Rates::default());
    Ok(Figures { runs_per_s: None, p99_ms: percentiles.map(|times| times.p99), ..figures })
}

/// Whether a run of each of these shards has ended after this time.
fn ended_since(ends: &Ends, shards: &BTreeSet<ShardId>, since: Duration) -> bool {
    let ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
    shards.iter().all(|shard| ends.get(shard).is_some_and(|end| *end > since))
}

/// Whether all shards have owners, and no owner has more than one shard more than another.
fn is_spread(owners: &BTreeMap<u16, Vec<ShardId>>, shards: usize) -> bool {
    let counts = || owners.values().map(Vec::len);
    owners.len() > 1 && counts().sum::<usize>() == shards && counts().max() <= counts().min().map(|least| least + 1)
}

/// A client whose runs are all in one shard.
fn client(load: &Load, probe: &Probe, slots: &Arc<Vec<ShardId>>, shard: ShardId, ends: &Ends) -> Clients {
    let (load, clock, slots, ends) = (load.clone(), probe.clock(), slots.clone(), ends.clone());
    Clients::start(probe.clock(), 1, move || {
        let (load, clock, slots, ends) = (load.clone(), clock.clone(), slots.clone(), ends.clone());
        async move {
            let (value, workflow_id) = key_in(&load, &slots, shard)?;
            expect(&load.client().start(&code::one_activity, Load::options(workflow_id), value).await?, value + 1).await?;
            ends.lock().unwrap_or_else(PoisonError::into_inner).insert(shard, clock.monotonic());
            Ok(true)
        }
    })
}

/// A new business key whose runs are in this shard.
pub(super) fn key_in(load: &Load, slots: &[ShardId], shard: ShardId) -> anyhow::Result<(u64, String)> {
    loop {
        let value = load.number();
        let workflow_id = format!("takeover-{value}");
        let slot = Slot::of(&Namespace::default(), &WorkflowId::new(&workflow_id)?);
        if slots.get(usize::from(slot.number())) == Some(&shard) {
            return Ok((value, workflow_id));
        }
    }
}

/// The shards of each owner, by the port at which it serves.
async fn owners(store: &PgStore) -> anyhow::Result<BTreeMap<u16, Vec<ShardId>>> {
    let mut owners: BTreeMap<u16, Vec<ShardId>> = BTreeMap::new();
    for lease in store.leases().await? {
        if let (Some(address), true) = (lease.address, lease.remaining_ms > 0) {
            let port = address.trim_end_matches('/').rsplit_once(':').context("an address without a port")?.1.parse()?;
            owners.entry(port).or_default().push(lease.shard_id);
        }
    }
    Ok(owners)
}

/// The owner of most shards: the port at which it serves, and its shards.
pub(super) async fn busiest(store: &PgStore) -> anyhow::Result<(u16, Vec<ShardId>)> {
    owners(store).await?.into_iter().max_by_key(|(_, shards)| shards.len()).context("nobody owns a shard")
}
