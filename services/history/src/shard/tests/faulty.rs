//! A store that fails as it is told. One per owner: a frozen process is one whose store does not answer.

use async_trait::async_trait;
use bytes::Bytes;
use harvest_ids::{Epoch, EventId, ExecutionId, Namespace, ShardId, Timestamp, WorkflowId, WorkflowType};
use harvest_persistence::batch::{Batch, BatchId, DueRow, OutboxRow, RunRow, TaskRow};
use harvest_persistence::error::{CommitError, StoreError};
use harvest_persistence::store::{BacklogQueue, Fence, Recovery, RunFilter, ShardStore, ShardWriter, StoredRun};
use harvest_workflow_core::state::Status;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// What happens to one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Commits,
    Poisoned,
    /// Refused before anything is written.
    Unavailable,
    /// Written, and the answer is lost.
    UnknownLanded,
    /// Not written, and nobody knows.
    UnknownLost,
    /// The answer is lost while the statement is on its way: it lands later, unless the epoch has been raised by then.
    UnknownLate,
    ShardLost,
}

/// What a test makes the store do, and what it saw it do.
#[derive(Debug)]
pub(super) struct Faults {
    inner: Mutex<Inner>,
    /// Commits wait while this holds.
    held: watch::Sender<bool>,
    /// Everything waits while this holds.
    frozen: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Inner {
    script: VecDeque<Fate>,
    /// Text that no history row may hold.
    poison: Option<Bytes>,
    failing_reads: bool,
    held_finds: bool,
    batches: Vec<Batch>,
    epoch_reads: usize,
    loads: usize,
}

impl Faults {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), held: watch::channel(false).0, frozen: watch::channel(false).0 })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// The fates of the commits to come; those after the script commit.
    pub(super) fn script(&self, fates: impl IntoIterator<Item = Fate>) {
        self.inner().script.extend(fates);
    }

    pub(super) fn poison(&self, text: &'static str) {
        self.inner().poison = Some(Bytes::from_static(text.as_bytes()));
    }

    pub(super) fn hold_commits(&self, held: bool) {
        self.held.send_replace(held);
    }

    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    pub(super) fn fail_reads(&self, failing: bool) {
        self.inner().failing_reads = failing;
    }

    /// Lookups of business keys wait while commits are held.
    pub(super) fn hold_finds(&self) {
        self.inner().held_finds = true;
    }

    /// All batches that committed.
    pub(super) fn batches(&self) -> Vec<Batch> {
        self.inner().batches.clone()
    }

    pub(super) fn commits(&self) -> usize {
        self.inner().batches.len()
    }

    pub(super) fn epoch_reads(&self) -> usize {
        self.inner().epoch_reads
    }

    pub(super) fn loads(&self) -> usize {
        self.inner().loads
    }

    async fn thawed(&self) {
        pass(&self.frozen).await;
    }

    async fn readable(&self) -> Result<(), StoreError> {
        self.thawed().await;
        if self.inner().failing_reads { Err(StoreError::Unavailable("made to fail".into())) } else { Ok(()) }
    }

    fn fate(&self, batch: &Batch) -> Fate {
        let mut inner = self.inner();
        let holds = |text: &Bytes| batch.history.iter().any(|row| row.records.windows(text.len()).any(|window| window == text));
        if inner.poison.as_ref().is_some_and(holds) { Fate::Poisoned } else { inner.script.pop_front().unwrap_or(Fate::Commits) }
    }
}

async fn pass(gate: &watch::Sender<bool>) {
    gate.subscribe().wait_for(|shut| !shut).await.expect("the gate lives");
}

/// A store with faults.
#[derive(Clone)]
pub(super) struct Faulty {
    pub(super) store: Arc<dyn ShardStore>,
    pub(super) faults: Arc<Faults>,
}

#[async_trait]
impl ShardStore for Faulty {
    async fn take_over(&self, shard_id: ShardId) -> Result<Fence, StoreError> {
        self.faults.readable().await?;
        self.store.take_over(shard_id).await
    }

    async fn open_writer(&self, shard_id: ShardId, epoch: Epoch) -> Result<Box<dyn ShardWriter>, StoreError> {
        self.faults.readable().await?;
        let writer = self.store.open_writer(shard_id, epoch).await?;
        Ok(Box::new(FaultyWriter { writer: Some(writer), faults: self.faults.clone() }))
    }

    async fn settle(&self, batch: BatchId) -> Result<Option<Fence>, StoreError> {
        self.faults.readable().await?;
        self.store.settle(batch).await
    }

    async fn epoch(&self, shard_id: ShardId) -> Result<Epoch, StoreError> {
        self.faults.inner().epoch_reads += 1;
        self.faults.readable().await?;
        // A look at the epoch is a round trip like any other.
        tokio::task::yield_now().await;
        self.store.epoch(shard_id).await
    }

    async fn recovery(&self, shard_id: ShardId) -> Result<Recovery, StoreError> {
        self.faults.readable().await?;
        self.store.recovery(shard_id).await
    }

    async fn load_run(&self, shard_id: ShardId, execution_id: ExecutionId) -> Result<Option<StoredRun>, StoreError> {
        self.faults.inner().loads += 1;
        self.faults.readable().await?;
        tokio::task::yield_now().await;
        self.store.load_run(shard_id, execution_id).await
    }

    async fn find_run(
        &self,
        shard_id: ShardId,
        namespace: &Namespace,
        workflow_type: &WorkflowType,
        workflow_id: &WorkflowId,
    ) -> Result<Option<(ExecutionId, Status)>, StoreError> {
        self.faults.readable().await?;
        let held = self.faults.inner().held_finds;
        let found = self.store.find_run(shard_id, namespace, workflow_type, workflow_id).await;
        if held {
            pass(&self.faults.held).await;
        }
        found
    }

    async fn history(&self, shard_id: ShardId, execution_id: ExecutionId, from: EventId, max_bytes: usize) -> Result<Vec<Bytes>, StoreError> {
        self.faults.readable().await?;
        self.store.history(shard_id, execution_id, from, max_bytes).await
    }

    async fn backlog_queues(&self, shard_id: ShardId) -> Result<Vec<BacklogQueue>, StoreError> {
        self.faults.readable().await?;
        self.store.backlog_queues(shard_id).await
    }

    async fn backlog(&self, shard_id: ShardId, queue: &BacklogQueue, after: i64, limit: u32) -> Result<Vec<TaskRow>, StoreError> {
        self.faults.readable().await?;
        let rows = self.store.backlog(shard_id, queue, after, limit).await;
        // The answer travels: what commits meanwhile is not in it.
        tokio::task::yield_now().await;
        rows
    }

    async fn outbox(&self, shard_id: ShardId, after: i64, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        self.faults.readable().await?;
        let rows = self.store.outbox(shard_id, after, limit).await;
        tokio::task::yield_now().await;
        rows
    }

    async fn due(&self, shards: &[ShardId], until: Timestamp, limit: u32) -> Result<Vec<(ShardId, DueRow)>, StoreError> {
        self.faults.readable().await?;
        self.store.due(shards, until, limit).await
    }

    async fn list(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.faults.readable().await?;
        self.store.list(filter).await
    }
}

struct FaultyWriter {
    /// Gone once a commit's answer was lost: that connection is dead.
    writer: Option<Box<dyn ShardWriter>>,
    faults: Arc<Faults>,
}

#[async_trait]
impl ShardWriter for FaultyWriter {
    async fn commit(&mut self, id: BatchId, batch: &Batch) -> Result<(), CommitError> {
        let faults = self.faults.clone();
        faults.thawed().await;
        let lost = || CommitError::Unknown("made to be unknown".into());
        let Some(writer) = &mut self.writer else { return Err(lost()) };
        tokio::task::yield_now().await;
        pass(&faults.held).await;
        match faults.fate(batch) {
            Fate::Commits => {
                writer.commit(id, batch).await?;
                faults.inner().batches.push(batch.clone());
                // The answer reaches a frozen process when it runs again.
                faults.thawed().await;
                Ok(())
            }
            Fate::Poisoned => Err(CommitError::Poisoned("made to be poisoned".into())),
            Fate::Unavailable => Err(CommitError::Unavailable("made to fail".into())),
            Fate::UnknownLanded => {
                writer.commit(id, batch).await?;
                faults.inner().batches.push(batch.clone());
                self.writer = None;
                Err(lost())
            }
            Fate::UnknownLost => {
                self.writer = None;
                Err(lost())
            }
            Fate::UnknownLate => {
                if let Some(mut writer) = self.writer.take() {
                    let batch = batch.clone();
                    drop(harvest_runtime::spawn("late-commit", async move {
                        tokio::task::yield_now().await;
                        if writer.commit(id, &batch).await.is_ok() {
                            faults.inner().batches.push(batch);
                        }
                    }));
                }
                Err(lost())
            }
            Fate::ShardLost => Err(CommitError::ShardLost),
        }
    }
}
