//! What a shard tells the rest of the fleet. All of it are hints or redelivered until confirmed: a lost one costs time only.

use async_trait::async_trait;
use harvest_ids::{ActivityId, Epoch, ExecutionId, Namespace, ShardId, TaskQueue, Timestamp, WorkerId};
use harvest_persistence::batch::OutboxRow;
use std::time::Duration;

/// Kinds of offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    /// A workflow task.
    Workflow,
    /// An attempt of an activity.
    Activity,
    /// A query.
    Query,
}

/// A task that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The shard.
    pub shard_id: ShardId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Tenant.
    pub namespace: Namespace,
    /// Where it waits.
    pub queue: TaskQueue,
    /// What it is.
    pub kind: OfferKind,
    /// The run.
    pub execution_id: ExecutionId,
    /// For activities.
    pub activity_id: Option<ActivityId>,
    /// For queries: their number.
    pub query: Option<u64>,
    /// The session that has the run in memory.
    pub sticky: Option<WorkerId>,
    /// Order within the queue.
    pub sequence: i64,
}

/// The rest of the fleet, as a shard sees it.
#[async_trait]
pub trait Neighbours: Send + Sync + 'static {
    /// Tells matching of a ready task. False when no matching process can be told now: offer again later.
    fn offer(&self, offer: Offer) -> bool;

    /// How many untaken offers of one queue and kind a shard may have with matching.
    fn offer_window(&self) -> usize;

    /// Rises whenever offers may have been lost (a matching process came, went or was reconnected).
    fn offer_generation(&self) -> u64;

    /// Tells the shard's timer scanner of near deadlines.
    fn arm(&self, shard_id: ShardId, deadlines: Vec<(ExecutionId, Timestamp)>);

    /// The shard of a run.
    fn shard_of(&self, execution_id: ExecutionId) -> ShardId;

    /// Delivers messages to the owner of `target`, in order; true when all are durable there.
    async fn deliver(&self, target: ShardId, messages: Vec<OutboxRow>) -> bool;

    /// Every batch that the shard decided under an older configuration has committed.
    fn acknowledge(&self, shard_id: ShardId, epoch: Epoch, version: (u64, u64));

    /// Whether any frontend is alive: without one no announcement can arrive, and silence means nothing.
    fn frontends_alive(&self) -> bool;

    /// Asks all live frontends for the attempts of a shard that has just been taken over. Returns when each has announced what its workers
    /// run; the shard waits for it no longer than `within`. A fleet that cannot be asked never answers.
    async fn reannounce(&self, _shard_id: ShardId, _epoch: Epoch, _within: Duration) {
        std::future::pending().await
    }

    /// How long a sticky worker is waited for.
    fn sticky_timeout(&self) -> Duration;
}
