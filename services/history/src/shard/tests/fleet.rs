//! A fake of the rest of the fleet: it records what it is told and delivers messages between the shards of one test.

use crate::shard::ShardHandle;
use crate::shard::neighbours::{Neighbours, Offer};
use crate::shard::operation::{Operation, Refusal};
use async_trait::async_trait;
use harvest_ids::{Epoch, ExecutionId, ShardId, Timestamp};
use harvest_persistence::batch::OutboxRow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The fleet.
#[derive(Debug)]
pub(super) struct FakeFleet {
    shards: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// Offers that nobody has taken, in order.
    pub(super) offers: VecDeque<Offer>,
    pub(super) armed: Vec<(ShardId, ExecutionId, Timestamp)>,
    pub(super) acknowledged: Vec<(ShardId, Epoch, (u64, u64))>,
    /// Where messages for a shard go.
    pub(super) owners: BTreeMap<ShardId, ShardHandle>,
    pub(super) frontends_alive: bool,
    pub(super) matching_alive: bool,
    pub(super) window: usize,
    pub(super) generation: u64,
    /// The answers of so many deliveries get lost.
    pub(super) lost_confirmations: usize,
    pub(super) deliveries: usize,
}

impl FakeFleet {
    pub(super) fn new(shards: u32) -> Self {
        let inner = Inner {
            offers: VecDeque::new(),
            armed: Vec::new(),
            acknowledged: Vec::new(),
            owners: BTreeMap::new(),
            frontends_alive: true,
            matching_alive: true,
            window: 1000,
            generation: 1,
            lost_confirmations: 0,
            deliveries: 0,
        };
        Self { shards, inner: Mutex::new(inner) }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// All offers so far; they are taken out.
    pub(super) fn take_offers(&self) -> Vec<Offer> {
        self.inner().offers.drain(..).collect()
    }
}

#[async_trait]
impl Neighbours for FakeFleet {
    fn offer(&self, offer: Offer) -> bool {
        let mut inner = self.inner();
        if inner.matching_alive {
            inner.offers.push_back(offer);
        }
        inner.matching_alive
    }

    fn offer_window(&self) -> usize {
        self.inner().window
    }

    fn offer_generation(&self) -> u64 {
        self.inner().generation
    }

    fn arm(&self, shard_id: ShardId, deadlines: Vec<(ExecutionId, Timestamp)>) {
        self.inner().armed.extend(deadlines.into_iter().map(|(id, at)| (shard_id, id, at)));
    }

    fn shard_of(&self, execution_id: ExecutionId) -> ShardId {
        ShardId(u32::from(execution_id.slot().number()) % self.shards)
    }

    async fn deliver(&self, target: ShardId, messages: Vec<OutboxRow>) -> bool {
        let Some(owner) = self.inner().owners.get(&target).cloned() else { return false };
        let mut answers = Vec::new();
        for row in messages {
            let message = Box::new(harvest_wire::message::decode(&row.message).unwrap());
            match owner.submit(Operation::Deliver { message, key_looked_up: false }) {
                Ok(answer) => answers.push(answer),
                Err(_) => return false,
            }
        }
        for answer in answers {
            if answer.await.unwrap_or(Err(Refusal::NotOwner)).is_err_and(|refusal| !refusal.ends_delivery()) {
                return false;
            }
        }
        let mut inner = self.inner();
        inner.deliveries += 1;
        let lost = inner.lost_confirmations > 0;
        inner.lost_confirmations = inner.lost_confirmations.saturating_sub(1);
        !lost
    }

    fn acknowledge(&self, shard_id: ShardId, epoch: Epoch, version: (u64, u64)) {
        self.inner().acknowledged.push((shard_id, epoch, version));
    }

    fn frontends_alive(&self) -> bool {
        self.inner().frontends_alive
    }

    fn sticky_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}
