//! The network, matching and the timer scanner: they lose, repeat, delay and reorder.

use super::World;
use super::worker;
use crate::shard::ShardHandle;
use crate::shard::neighbours::{Neighbours, Offer};
use crate::shard::operation::{Answer, Operation, Refusal, Target};
use async_trait::async_trait;
use harvest_ids::{Epoch, ExecutionId, ShardId, Timestamp};
use harvest_persistence::batch::OutboxRow;
use harvest_runtime::{Clock, spawn};
use harvest_workflow_core::input::Input;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// How long a caller waits.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// What is on its way.
#[derive(Debug, Default)]
pub(super) struct Net {
    offers: Mutex<Vec<Offer>>,
    armed: Mutex<Vec<(ShardId, ExecutionId, Timestamp)>>,
    news: Notify,
    pub(super) generation: AtomicU64,
    pub(super) matching_down: AtomicBool,
    pub(super) frontends_down: AtomicBool,
}

impl Net {
    /// A matching process dies, and all that it knew.
    pub(super) fn forget_offers(&self) {
        self.offers.lock().unwrap().clear();
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

impl World {
    pub(super) fn shard_of(run: ExecutionId) -> ShardId {
        ShardId(u32::from(run.slot().number()) % super::SHARDS)
    }

    /// Whom a routing table names: the owner, mostly.
    fn route(&self, shard_id: ShardId) -> ShardHandle {
        let owners = self.owners();
        let owners = &owners[&shard_id];
        let at = if self.mishap(5) { self.dice.index(owners.len()) } else { owners.len() - 1 };
        owners[at].handle.clone()
    }

    /// One way through the network; false when what was sent is lost.
    pub(super) async fn hop(&self) -> bool {
        self.pause(5).await;
        if self.mishap(20) {
            self.pause(2_000).await;
        }
        !self.mishap(25)
    }

    /// One call; `None` when it or its answer was lost.
    pub(super) async fn call(&self, shard_id: ShardId, operation: Operation) -> Option<Result<Answer, Refusal>> {
        if !self.hop().await {
            return None;
        }
        let answer = match self.route(shard_id).submit(operation) {
            Ok(answer) => tokio::time::timeout(CALL_TIMEOUT, answer).await.ok()?.unwrap_or(Err(Refusal::NotOwner)),
            Err(refusal) => Err(refusal),
        };
        self.hop().await.then_some(answer)
    }

    /// Calls until there is an answer of the run itself.
    pub(super) async fn insist(&self, shard_id: ShardId, operation: impl Fn() -> Operation) -> Result<Answer, Refusal> {
        loop {
            match self.call(shard_id, operation()).await {
                None | Some(Err(Refusal::NotOwner | Refusal::Unavailable(_) | Refusal::StoreAway | Refusal::Overloaded { .. } | Refusal::Poisoned(_))) => {
                    self.pause(400).await;
                }
                Some(answer) => return answer,
            }
        }
    }
}

#[async_trait]
impl Neighbours for World {
    fn offer(&self, offer: Offer) -> bool {
        if self.net.matching_down.load(Ordering::Relaxed) {
            return false;
        }
        self.net.offers.lock().unwrap().push(offer);
        self.net.news.notify_one();
        true
    }

    fn offer_window(&self) -> usize {
        4
    }

    fn offer_generation(&self) -> u64 {
        self.net.generation.load(Ordering::Relaxed)
    }

    fn arm(&self, shard_id: ShardId, deadlines: Vec<(ExecutionId, Timestamp)>) {
        self.net.armed.lock().unwrap().extend(deadlines.into_iter().map(|(run, at)| (shard_id, run, at)));
    }

    fn shard_of(&self, execution_id: ExecutionId) -> ShardId {
        Self::shard_of(execution_id)
    }

    async fn deliver(&self, target: ShardId, messages: Vec<OutboxRow>) -> bool {
        let repeated = self.mishap(10);
        let first = self.deliver_once(target, &messages).await;
        if repeated {
            self.pause(3_000).await;
            return self.deliver_once(target, &messages).await;
        }
        first
    }

    fn acknowledge(&self, _: ShardId, _: Epoch, _: (u64, u64)) {}

    fn frontends_alive(&self) -> bool {
        !self.net.frontends_down.load(Ordering::Relaxed)
    }

    fn sticky_timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}

impl World {
    async fn deliver_once(&self, target: ShardId, messages: &[OutboxRow]) -> bool {
        if !self.hop().await {
            return false;
        }
        let owner = self.route(target);
        let mut answers = Vec::new();
        for row in messages {
            let message = Box::new(harvest_wire::message::decode(&row.message).unwrap());
            match owner.submit(Operation::Deliver { message, key_looked_up: false }) {
                Ok(answer) => answers.push(answer),
                Err(_) => return false,
            }
        }
        for answer in answers {
            let Ok(answer) = tokio::time::timeout(CALL_TIMEOUT, answer).await else { return false };
            if answer.unwrap_or(Err(Refusal::NotOwner)).is_err_and(|refusal| !refusal.ends_delivery()) {
                return false;
            }
        }
        self.note(format_args!("{} messages delivered to shard {target}", messages.len()));
        self.hop().await
    }
}

/// Starts matching and the scanner.
pub(super) fn spawn_all(world: &Arc<World>) {
    drop(spawn("matching", matching(world.clone())));
    drop(spawn("scanner", scanner(world.clone())));
}

async fn matching(world: Arc<World>) {
    loop {
        world.net.news.notified().await;
        loop {
            let offer = {
                let mut offers = world.net.offers.lock().unwrap();
                if offers.is_empty() {
                    break;
                }
                // The oldest, mostly.
                let at = if world.mishap(4) { world.dice.index(offers.len()) } else { 0 };
                offers.remove(at)
            };
            let copies = if world.mishap(30) {
                0
            } else if world.mishap(15) {
                2
            } else {
                1
            };
            for _ in 0..copies {
                drop(spawn("task", worker::take(world.clone(), offer.clone())));
            }
        }
    }
}

/// Wakes runs: those that were announced at their time, all others as their rows come due.
async fn scanner(world: Arc<World>) {
    let shards: Vec<ShardId> = World::shards().collect();
    loop {
        world.pause(100).await;
        let armed = std::mem::take(&mut *world.net.armed.lock().unwrap());
        for (shard_id, run, at) in armed {
            if !world.mishap(10) {
                drop(spawn("armed", announced(world.clone(), shard_id, run, at)));
            }
        }
        if world.dice.one_in(5) {
            let rows = world.store.due(&shards, world.clock.now(), 100).await.unwrap();
            for (shard_id, row) in rows {
                drop(spawn("due", wake(world.clone(), shard_id, row.execution_id)));
            }
        }
    }
}

async fn announced(world: Arc<World>, shard_id: ShardId, run: ExecutionId, at: Timestamp) {
    world.clock.sleep_until(at).await;
    wake(world, shard_id, run).await;
}

async fn wake(world: Arc<World>, shard_id: ShardId, run: ExecutionId) {
    let wake = Operation::Input { target: Target::Execution(run), follow_chain: false, input: Input::Wake };
    if let Some(Ok(Answer::Decided { fresh: true, .. })) = world.call(shard_id, wake).await {
        world.note(format_args!("run {run} woke"));
    }
}
