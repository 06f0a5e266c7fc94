//! Who owns the shards, and load that sees them change hands: for each shard a client whose runs are all in it.

use super::code;
use super::load::{Clients, Load, expect};
use super::probe::{Probe, wait_until};
use super::progress::Progress;
use anyhow::Context as _;
use harvest_ids::{Namespace, ShardId, Slot, WorkflowId};
use harvest_persistence::control::DirectoryStore;
use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_runtime::{Clock, SystemClock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a change of owners and the return of a process may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Load before each change.
const LOAD: Duration = Duration::from_secs(2);

/// When runs of a shard ended, on the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ends {
    /// The last one.
    pub last: Duration,
    /// The longest time between two of them since [`ShardClients::forget_pauses`].
    pub longest_pause: Duration,
}

/// One client per shard: each runs one-activity runs, one after the other.
pub(super) struct ShardClients {
    pub store: PgStore,
    pub shards: BTreeSet<ShardId>,
    clock: Arc<SystemClock>,
    ends: Arc<Mutex<BTreeMap<ShardId, Ends>>>,
    clients: Vec<Clients>,
}

impl ShardClients {
    /// Starts them.
    pub async fn start(load: &Load, probe: &Probe) -> anyhow::Result<Self> {
        let url = probe.database_url().context("this needs Postgres")?;
        let store = PgStore::connect(url, PgOptions { max_sessions: 1, ..PgOptions::default() }).await?;
        let (_, slots) = store.slot_map().await?;
        let slots = Arc::new(slots);
        let shards: BTreeSet<ShardId> = slots.iter().copied().collect();
        let mut all = Self { store, clock: probe.clock(), ends: Arc::default(), clients: Vec::new(), shards };
        all.clients = all.shards.iter().map(|shard| all.client(load, &slots, *shard)).collect();
        Ok(all)
    }

    fn client(&self, load: &Load, slots: &Arc<Vec<ShardId>>, shard: ShardId) -> Clients {
        let (load, clock, slots, ends) = (load.clone(), self.clock.clone(), slots.clone(), self.ends.clone());
        Clients::start(self.clock.clone(), 1, move || {
            let (load, clock, slots, ends) = (load.clone(), clock.clone(), slots.clone(), ends.clone());
            async move {
                let (value, workflow_id) = key_in(&load, &slots, shard)?;
                expect(&load.client().start(&code::one_activity, Load::options(workflow_id), value).await?, value + 1).await?;
                let now = clock.monotonic();
                let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
                let ends = ends.entry(shard).or_insert(Ends { last: now, longest_pause: Duration::ZERO });
                ends.longest_pause = ends.longest_pause.max(now.saturating_sub(ends.last));
                ends.last = now;
                Ok(true)
            }
        })
    }

    /// When runs of the shards ended.
    pub fn ends(&self) -> MutexGuard<'_, BTreeMap<ShardId, Ends>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look for the longest pause afresh.
    pub fn forget_pauses(&self) {
        self.ends().values_mut().for_each(|ends| ends.longest_pause = Duration::ZERO);
    }

    /// Returns when the shards are spread, open and have been at work for a while.
    pub async fn settle(&mut self, name: &'static str, progress: &Progress) -> anyhow::Result<()> {
        let (clock, count) = (self.clock.clone(), self.shards.len());
        wait_until(&clock, "shards to be spread", PATIENCE, || async { owners(&self.store).await.is_ok_and(|owners| is_spread(&owners, count)) }).await?;
        self.all_work().await?;
        for client in &mut self.clients {
            client.work(name, LOAD / u32::try_from(count)?, progress).await?;
        }
        Ok(())
    }

    /// Returns when a run of each shard has ended since now.
    pub async fn all_work(&self) -> anyhow::Result<()> {
        let since = self.clock.monotonic();
        wait_until(&self.clock, "every shard to be at work", PATIENCE, || {
            let ends = self.ends();
            std::future::ready(self.shards.iter().all(|shard| ends.get(shard).is_some_and(|ends| ends.last > since)))
        })
        .await
    }

    /// Ends them.
    pub async fn stop(self) -> anyhow::Result<()> {
        for client in self.clients {
            client.stop().await?;
        }
        Ok(())
    }
}

/// Whether all shards have owners, and no owner has more than one shard more than another.
fn is_spread(owners: &BTreeMap<u16, Vec<ShardId>>, shards: usize) -> bool {
    let counts = || owners.values().map(Vec::len);
    owners.len() > 1 && counts().sum::<usize>() == shards && counts().max() <= counts().min().map(|least| least + 1)
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
