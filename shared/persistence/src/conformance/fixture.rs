//! Rows for the cases.

use crate::batch::{Batch, BatchId, DueRow, HistoryRow, OutboxRow, RunMutable, RunRow, RunUpdate, TaskId, TaskRow};
use crate::error::CommitError;
use crate::store::{Fence, ShardStore, ShardWriter};
use bytes::Bytes;
use harvest_ids::{EventId, ExecutionId, Namespace, ShardId, Slot, TaskQueue, Timestamp, WorkflowId, WorkflowType};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::state::Status;

/// A name that must be good.
macro_rules! named {
    ($($function:ident $type:ty),*) => {$(
        /// Makes the newtype of a name known to be well-formed.
        pub fn $function(text: &str) -> $type {
            <$type>::new(text).expect("the case's name is well-formed")
        }
    )*};
}
named!(namespace Namespace, workflow_type WorkflowType, workflow_id WorkflowId, queue TaskQueue);

/// An instant.
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// The id of the `number`th run.
pub fn id(number: u64) -> ExecutionId {
    ExecutionId::new(Slot::new(7).expect("7 is a slot"), at(1_796_000_000_000), number)
}

/// The row of an open run; workflow id `order-<number>`, started `number` milliseconds after 1000.
pub fn run(number: u64) -> RunRow {
    RunRow {
        execution_id: id(number),
        namespace: Namespace::default(),
        workflow_type: workflow_type("order"),
        workflow_id: workflow_id(&format!("order-{number}")),
        first_execution_id: id(number),
        parent_execution_id: None,
        task_queue: queue("orders"),
        started_at: at(1000 + i64::try_from(number).expect("case numbers are small")),
        sla_ms: None,
        execution_timeout_ms: None,
        mutable: open(1),
    }
}

/// The changing columns of an open run.
pub fn open(last_event: u64) -> RunMutable {
    RunMutable {
        status: Status::Running,
        closed_at: None,
        last_event: EventId(last_event),
        continued_as: None,
        blocked_at: None,
        blocked_reason: None,
        paused_at: None,
        sla_deadline_at: None,
        sla_breached_at: None,
    }
}

/// The changing columns of a closed run.
pub fn closed(status: Status, last_event: u64, closed_at: i64) -> RunMutable {
    RunMutable { status, closed_at: Some(at(closed_at)), ..open(last_event) }
}

/// A change of the `number`th run.
pub fn change(number: u64, mutable: RunMutable) -> RunUpdate {
    RunUpdate { execution_id: id(number), mutable }
}

/// A history row in which every record is an event.
pub fn events(number: u64, first: u64, count: u32, bytes: &[u8]) -> HistoryRow {
    HistoryRow {
        execution_id: id(number),
        first_record: first,
        record_count: count,
        first_event: EventId(first),
        event_count: count,
        records: Bytes::copy_from_slice(bytes),
    }
}

/// The key of a run's workflow task.
pub fn workflow_task(number: u64) -> TaskId {
    TaskId { execution_id: id(number), key: TaskKey::Workflow }
}

/// The key of an activity's task.
pub fn activity_task(number: u64, activity: u64) -> TaskId {
    TaskId { execution_id: id(number), key: TaskKey::Activity(EventId(activity)) }
}

/// A task on queue `orders`.
pub fn task(task: TaskId, sequence: i64) -> TaskRow {
    TaskRow { task, sequence, namespace: Namespace::default(), queue: queue("orders") }
}

/// A deadline.
pub fn due(number: u64, due_at: i64) -> DueRow {
    DueRow { execution_id: id(number), due_at: at(due_at) }
}

/// A message.
pub fn message(sequence: i64, target: u64, bytes: &[u8]) -> OutboxRow {
    OutboxRow { sequence, target: id(target), message: Bytes::copy_from_slice(bytes) }
}

/// An owner of one shard: takes it over and commits with rising batch numbers.
pub struct Owner {
    /// The shard.
    pub shard: ShardId,
    /// The fence after the takeover, with the last batch number that was used.
    pub fence: Fence,
    /// Its writer.
    pub writer: Box<dyn ShardWriter>,
}

impl Owner {
    /// Takes a shard over.
    pub async fn of(store: &dyn ShardStore, shard: u32) -> Self {
        let shard = ShardId(shard);
        let fence = store.take_over(shard).await.expect("the shard can be taken over");
        let writer = store.open_writer(shard, fence.epoch).await.expect("a writer can be opened");
        Self { shard, fence, writer }
    }

    /// The name of the next batch.
    pub fn next_batch(&mut self) -> BatchId {
        self.fence.batch_seq += 1;
        BatchId { shard_id: self.shard, epoch: self.fence.epoch, batch_seq: self.fence.batch_seq }
    }

    /// Commits, whatever comes of it.
    pub async fn try_commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        let id = self.next_batch();
        self.writer.commit(id, batch).await
    }

    /// Commits a batch that must be good.
    pub async fn commit(&mut self, batch: Batch) {
        self.try_commit(&batch).await.expect("the batch commits");
    }
}
