//! One fenced commit of a shard: the only thing that ever writes a run's rows.
//!
//! The engine has already coalesced: a row key occurs once per batch and in one list only; what was born and died since the last
//! batch is in no list.

use bytes::Bytes;
use harvest_ids::{ActivityId, Epoch, EventId, ExecutionId, Namespace, ShardId, TaskQueue, Timestamp, WorkflowId, WorkflowType};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::state::Status;

/// Everything that one commit writes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Runs that are new.
    pub runs_new: Vec<RunRow>,
    /// Runs whose row changed.
    pub runs_changed: Vec<RunUpdate>,
    /// New history rows.
    pub history: Vec<HistoryRow>,
    /// Tasks that became ready.
    pub tasks_new: Vec<TaskRow>,
    /// Tasks that ended or wait for a back-off.
    pub tasks_gone: Vec<TaskId>,
    /// Runs that had no deadline and have one now.
    pub due_new: Vec<DueRow>,
    /// Runs whose earliest deadline changed.
    pub due_changed: Vec<DueRow>,
    /// Runs that have no deadline any more.
    pub due_gone: Vec<ExecutionId>,
    /// New messages for other runs.
    pub outbox_new: Vec<OutboxRow>,
    /// Messages that their target has committed, by sequence.
    pub outbox_gone: Vec<i64>,
}

impl Batch {
    /// Whether it writes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Names one commit: `batch_seq` is what the fence row holds afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchId {
    /// The shard.
    pub shard_id: ShardId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// One more than that of the batch before.
    pub batch_seq: u64,
}

/// The row of a run: what lists show and what finds a run by its business key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The run.
    pub execution_id: ExecutionId,
    /// Tenant.
    pub namespace: Namespace,
    /// Type.
    pub workflow_type: WorkflowType,
    /// Business key.
    pub workflow_id: WorkflowId,
    /// First run of the chain.
    pub first_execution_id: ExecutionId,
    /// Parent, for a child.
    pub parent_execution_id: Option<ExecutionId>,
    /// Queue of its workflow tasks.
    pub task_queue: TaskQueue,
    /// When it started.
    pub started_at: Timestamp,
    /// Effective execution timeout in milliseconds.
    pub execution_timeout_ms: Option<u64>,
    /// After how many milliseconds it counts as late.
    pub sla_ms: Option<u64>,
    /// What changes.
    pub mutable: RunMutable,
}

/// The columns of a run's row that change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunMutable {
    /// Whether and how it ended.
    pub status: Status,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// Events so far.
    pub last_event: EventId,
    /// Its successor.
    pub continued_as: Option<ExecutionId>,
    /// Since when it is blocked by non-determinism.
    pub blocked_at: Option<Timestamp>,
    /// Why.
    pub blocked_reason: Option<String>,
    /// Since when it is paused. Its status is that of a running one, so that it keeps its business key.
    pub paused_at: Option<Timestamp>,
    /// When it counts as late.
    pub sla_deadline_at: Option<Timestamp>,
    /// When it was found to be late.
    pub sla_breached_at: Option<Timestamp>,
}

/// A change of a run's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunUpdate {
    /// The run.
    pub execution_id: ExecutionId,
    /// The new values.
    pub mutable: RunMutable,
}

/// The records of one decision (or of several of one run, coalesced).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRow {
    /// The run.
    pub execution_id: ExecutionId,
    /// Number of the first record, counting all records of the run from 1: dense, so it is the row's key.
    pub first_record: u64,
    /// How many records.
    pub record_count: u32,
    /// First event in it; the next one that will come when it holds none.
    pub first_event: EventId,
    /// How many events.
    pub event_count: u32,
    /// The records, encoded by `harvest_wire::records`.
    pub records: Bytes,
}

/// Names a pending task in one column: 16 bytes of execution id, 8 bytes big-endian activity id (0 = the workflow task).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The run.
    pub execution_id: ExecutionId,
    /// Which task of it.
    pub key: TaskKey,
}

impl TaskId {
    /// The column's bytes.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(self.execution_id.as_uuid().as_bytes());
        let number = match self.key {
            TaskKey::Workflow => 0,
            TaskKey::Activity(ActivityId { 0: id }) => id,
        };
        bytes[16..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// Reads [`TaskId::to_bytes`] back; `None` when it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let id = bytes.get(..16)?.try_into().ok().map(uuid::Uuid::from_bytes)?;
        let number = u64::from_be_bytes(bytes.get(16..24)?.try_into().ok()?);
        let key = if number == 0 { TaskKey::Workflow } else { TaskKey::Activity(EventId(number)) };
        (bytes.len() == 24).then_some(())?;
        Some(Self { execution_id: ExecutionId::from_uuid(id).ok()?, key })
    }
}

/// A pending task: there from when it becomes ready until it ends or backs off, so that a new owner finds all pending work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// Its key.
    pub task: TaskId,
    /// Order within the shard: given by the owner, rising.
    pub sequence: i64,
    /// Tenant.
    pub namespace: Namespace,
    /// Where it waits.
    pub queue: TaskQueue,
}

/// A run's earliest deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueRow {
    /// The run.
    pub execution_id: ExecutionId,
    /// When.
    pub due_at: Timestamp,
}

/// A message for a run that may live on another shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Order within the shard: given by the owner, rising.
    pub sequence: i64,
    /// The receiver's run, for routing.
    pub target: ExecutionId,
    /// The message, encoded by `harvest_wire::message`.
    pub message: Bytes,
}
