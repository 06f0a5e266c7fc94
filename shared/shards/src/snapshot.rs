//! What a process believes about the fleet at one moment.

use crate::rendezvous;
use harvest_ids::{Epoch, ShardId, Slot};
use harvest_persistence::control::{Lease, Member, ServiceKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The history process that is believed to own a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its id in the membership; empty when only its address is known, from another process's hint.
    pub process_id: String,
    /// Where it serves gRPC.
    pub address: String,
    /// The shard's epoch when last read.
    pub epoch: Epoch,
}

/// A lease as last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// The row.
    pub lease: Lease,
    /// When it expires, on this process's monotonic clock.
    pub expires_at: Duration,
}

/// The fleet as last read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    pub(crate) slot_map_version: u64,
    pub(crate) slots: Arc<[ShardId]>,
    pub(crate) members: BTreeSet<Member>,
    pub(crate) leases: BTreeMap<ShardId, LeaseView>,
    /// When the leases were read, on the monotonic clock.
    pub(crate) leases_read_at: Duration,
    pub(crate) owners: BTreeMap<ShardId, Owner>,
    /// Processes that could not be reached, until when they are avoided.
    pub(crate) suspects: BTreeMap<String, Duration>,
}

impl Snapshot {
    /// The shard of a slot; `None` only when the slot map is broken (it has a shard for every slot).
    pub fn shard_of(&self, slot: Slot) -> Option<ShardId> {
        self.slots.get(usize::from(slot.number())).copied()
    }

    /// All shards, in order.
    pub fn shards(&self) -> BTreeSet<ShardId> {
        self.slots.iter().copied().collect()
    }

    /// How many slots each shard has.
    pub fn slot_counts(&self) -> BTreeMap<ShardId, u32> {
        let mut counts = BTreeMap::new();
        self.slots.iter().for_each(|shard| *counts.entry(*shard).or_insert(0) += 1);
        counts
    }

    /// The believed owner of a shard.
    pub fn owner(&self, shard: ShardId) -> Option<&Owner> {
        self.owners.get(&shard)
    }

    /// The lease of a shard, as last read.
    pub fn lease(&self, shard: ShardId) -> Option<&LeaseView> {
        self.leases.get(&shard)
    }

    /// Live processes of a service, those that could not be reached included.
    pub fn members(&self, service: ServiceKind) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.service == service)
    }

    /// The process that has `key` among the live and reachable ones of a service, by rendezvous hash; when none is reachable, among all.
    pub fn place(&self, service: ServiceKind, key: &str) -> Option<&Member> {
        let reachable = self.members(service).filter(|member| !self.suspects.contains_key(&member.process_id));
        rendezvous::pick(key, reachable, |member| &member.process_id).or_else(|| rendezvous::pick(key, self.members(service), |member| &member.process_id))
    }

    /// Whether two snapshots would answer every routing question alike.
    pub(crate) fn routes_like(&self, other: &Self) -> bool {
        self.slot_map_version == other.slot_map_version
            && self.members == other.members
            && self.owners == other.owners
            && self.suspects.keys().eq(other.suspects.keys())
    }

    /// The owners that leases name.
    pub(crate) fn owners_of(leases: &BTreeMap<ShardId, LeaseView>) -> BTreeMap<ShardId, Owner> {
        let owner = |lease: &Lease| Some(Owner { process_id: lease.owner.clone()?, address: lease.address.clone()?, epoch: lease.epoch });
        leases.iter().filter_map(|(shard, view)| Some((*shard, owner(&view.lease)?))).collect()
    }
}
