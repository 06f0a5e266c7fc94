//! The store of a shard's runs.

use crate::batch::{Batch, BatchId, DueRow, OutboxRow, RunRow, TaskRow};
use crate::error::{CommitError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use harvest_ids::{Epoch, EventId, ExecutionId, Namespace, ShardId, TaskQueue, Timestamp, WorkflowId, WorkflowType};
use harvest_workflow_core::state::Status;

/// What the fence row of a shard holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The last committed batch.
    pub batch_seq: u64,
}

/// A run as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    /// Its row.
    pub row: RunRow,
    /// The bytes of its history rows, in order: all its records.
    pub records: Vec<Bytes>,
    /// Its pending tasks that have a row: needed to write the difference later.
    pub tasks: Vec<TaskRow>,
    /// Its due row.
    pub due_at: Option<Timestamp>,
}

/// Kinds of tasks, as a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskKind {
    /// Workflow tasks.
    Workflow,
    /// Activity tasks.
    Activity,
}

/// What a new owner must know before its first decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// The largest task sequence in use; 0 when there is none.
    pub last_task_sequence: i64,
    /// The largest outbox sequence in use; 0 when there is none.
    pub last_outbox_sequence: i64,
}

/// One queue with pending tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BacklogQueue {
    /// Tenant.
    pub namespace: Namespace,
    /// Queue.
    pub queue: TaskQueue,
    /// Kind.
    pub kind: TaskKind,
}

/// What is unique among open runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusinessKey {
    /// Tenant.
    pub namespace: Namespace,
    /// Type.
    pub workflow_type: WorkflowType,
    /// The user's id.
    pub workflow_id: WorkflowId,
}

/// Reads of a shard's runs, and ownership. All reads go to the primary.
#[async_trait]
pub trait ShardStore: Send + Sync + 'static {
    /// Takes the shard: raises its epoch and returns the new fence. Waits for a statement in flight at most half a second, then ends the
    /// old owner's session. Every read of the new owner comes in a later statement.
    async fn take_over(&self, shard_id: ShardId) -> Result<Fence, StoreError>;

    /// Opens the one writer of an owned shard.
    async fn open_writer(&self, shard_id: ShardId, epoch: Epoch) -> Result<Box<dyn ShardWriter>, StoreError>;

    /// After [`CommitError::Unknown`]: raises the epoch from `batch.epoch` on a new connection, which waits for the old statement. Returns
    /// the new fence, whose `batch_seq` tells whether the batch landed; `None` when the epoch was not ours any more: the shard is lost.
    async fn settle(&self, batch: BatchId) -> Result<Option<Fence>, StoreError>;

    /// The shard's present epoch.
    async fn epoch(&self, shard_id: ShardId) -> Result<Epoch, StoreError>;

    /// Highest sequences in use.
    async fn recovery(&self, shard_id: ShardId) -> Result<Recovery, StoreError>;

    /// One run with all its records.
    async fn load_run(&self, shard_id: ShardId, execution_id: ExecutionId) -> Result<Option<StoredRun>, StoreError>;

    /// Of each business key its open run, else its newest closed one, else nothing; in the order of the keys.
    async fn find_runs(&self, shard_id: ShardId, keys: &[BusinessKey]) -> Result<Vec<Option<(ExecutionId, Status)>>, StoreError>;

    /// History rows that hold events from `from` on, in order, until about `max_bytes` have been read (at least one row). Each is the encoded
    /// records of one row, which may begin before `from` and hold control records.
    async fn history(&self, shard_id: ShardId, execution_id: ExecutionId, from: EventId, max_bytes: usize) -> Result<Vec<Bytes>, StoreError>;

    /// Queues of the shard that have pending tasks.
    async fn backlog_queues(&self, shard_id: ShardId) -> Result<Vec<BacklogQueue>, StoreError>;

    /// Pending tasks of one queue with a sequence above `after`, in order.
    async fn backlog(&self, shard_id: ShardId, queue: &BacklogQueue, after: i64, limit: u32) -> Result<Vec<TaskRow>, StoreError>;

    /// Undelivered messages with a sequence above `after`, in order.
    async fn outbox(&self, shard_id: ShardId, after: i64, limit: u32) -> Result<Vec<OutboxRow>, StoreError>;

    /// Due rows of several shards up to `until`, earliest first.
    async fn due(&self, shards: &[ShardId], until: Timestamp, limit: u32) -> Result<Vec<(ShardId, DueRow)>, StoreError>;

    /// Runs by filter, newest first, from all shards.
    async fn list(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError>;
}

/// The one writer of an owned shard: a connection of its own.
#[async_trait]
pub trait ShardWriter: Send {
    /// Commits a batch in one autocommit statement, all of whose writes join the fence row.
    async fn commit(&mut self, id: BatchId, batch: &Batch) -> Result<(), CommitError>;
}

/// Which runs to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFilter {
    /// Tenant.
    pub namespace: Namespace,
    /// Only this state.
    pub status: Option<Status>,
    /// Only paused runs, or only others.
    pub paused: Option<bool>,
    /// Only runs that were found to be late, or only others.
    pub sla_breached: Option<bool>,
    /// Only this type.
    pub workflow_type: Option<WorkflowType>,
    /// Only this business key.
    pub workflow_id: Option<WorkflowId>,
    /// Only runs after this one in the order (started_at, execution id) descending.
    pub after: Option<(Timestamp, ExecutionId)>,
    /// At most this many.
    pub limit: u32,
}

impl RunFilter {
    /// Every run of a tenant, the newest 100.
    pub fn all(namespace: Namespace) -> Self {
        Self { namespace, status: None, paused: None, sla_breached: None, workflow_type: None, workflow_id: None, after: None, limit: 100 }
    }
}
