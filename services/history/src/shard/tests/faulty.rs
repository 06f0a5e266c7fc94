//! A store that fails as it is told. One per owner: a frozen process is one whose store does not answer.

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use harvest_ids::{Epoch, EventId, ExecutionId, ShardId, Timestamp};
use harvest_persistence::batch::{Batch, BatchId, DueRow, OutboxRow, RunRow, TaskRow};
use harvest_persistence::error::{CommitError, StoreError};
use harvest_persistence::store::{BacklogQueue, BusinessKey, Fence, Recovery, RunFilter, ShardStore, ShardWriter, StoredRun};
use harvest_workflow_core::state::Status;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::sync::Notify;

/// What happens to one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Commits,
    /// Some value is not acceptable. A batch without values commits.
    Poisoned,
    /// Refused before anything is written.
    Unavailable,
    /// Written, and the answer is lost.
    UnknownLanded,
    /// Not written, and nobody knows.
    UnknownLost,
    /// The answer is lost while the statement is on its way: it lands later, unless the epoch has been raised by then.
    UnknownLate,
}

/// What is wrong with the whole store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Outage {
    #[default]
    None,
    /// It can be read; every write is refused: a full disk, or one that is read only.
    Full,
    /// Nothing can be reached, and what was under way is lost.
    Away,
}

/// What a test makes the store do, and what it saw it do.
#[derive(Debug)]
pub(super) struct Faults {
    inner: Mutex<Inner>,
    /// Commits wait while this is shut.
    commits: Gate,
    /// Everything waits while this is shut.
    process: Gate,
    /// How long things take; no time unless a simulation says so.
    pace: OnceLock<Pace>,
}

/// Says how long the next round trip takes.
pub(super) struct Pace(pub(super) Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pace")
    }
}

/// Lets nobody pass while it is shut. Those who wait go on in the order they came, so that a simulation repeats.
#[derive(Debug, Default)]
struct Gate {
    shut: AtomicBool,
    opened: Notify,
}

impl Gate {
    fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::Relaxed);
        if !shut {
            self.opened.notify_waiters();
        }
    }

    async fn pass(&self) {
        loop {
            let opened = self.opened.notified();
            if !self.shut.load(Ordering::Relaxed) {
                return;
            }
            opened.await;
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    script: VecDeque<Fate>,
    /// Text that no history row may hold.
    poison: Option<Bytes>,
    failing_reads: bool,
    outage: Outage,
    held_finds: bool,
    batches: Vec<Batch>,
    epoch_reads: usize,
    loads: usize,
}

impl Faults {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), commits: Gate::default(), process: Gate::default(), pace: OnceLock::new() })
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
        self.commits.shut(held);
    }

    pub(super) fn freeze(&self, frozen: bool) {
        self.process.shut(frozen);
    }

    pub(super) fn fail_reads(&self, failing: bool) {
        self.inner().failing_reads = failing;
    }

    pub(super) fn set_outage(&self, outage: Outage) {
        self.inner().outage = outage;
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

    /// From now on round trips take time.
    pub(super) fn set_pace(&self, pace: Pace) {
        assert!(self.pace.set(pace).is_ok(), "the pace is set once");
    }

    async fn thawed(&self) {
        self.process.pass().await;
    }

    /// One way of a round trip.
    async fn travel(&self) {
        match self.pace.get() {
            Some(Pace(pace)) => pace().await,
            None => tokio::task::yield_now().await,
        }
    }

    async fn readable(&self) -> Result<(), StoreError> {
        self.thawed().await;
        let inner = self.inner();
        if inner.failing_reads || inner.outage == Outage::Away { Err(StoreError::Unavailable("made to fail".into())) } else { Ok(()) }
    }

    async fn writable(&self) -> Result<(), StoreError> {
        self.readable().await?;
        if self.inner().outage == Outage::Full { Err(StoreError::Unavailable("database or disk is full".into())) } else { Ok(()) }
    }

    fn fate(&self, batch: &Batch) -> Fate {
        let mut inner = self.inner();
        let holds = |text: &Bytes| batch.history.iter().any(|row| row.records.windows(text.len()).any(|window| window == text));
        let present = match inner.outage {
            Outage::None => Fate::Commits,
            Outage::Full => Fate::Unavailable,
            Outage::Away => Fate::UnknownLost,
        };
        if inner.poison.as_ref().is_some_and(holds) { Fate::Poisoned } else { inner.script.pop_front().unwrap_or(present) }
    }
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
        self.faults.writable().await?;
        self.faults.travel().await;
        self.store.take_over(shard_id).await
    }

    async fn open_writer(&self, shard_id: ShardId, epoch: Epoch) -> Result<Box<dyn ShardWriter>, StoreError> {
        self.faults.readable().await?;
        self.faults.travel().await;
        let writer = self.store.open_writer(shard_id, epoch).await?;
        Ok(Box::new(FaultyWriter { writer: Some(writer), faults: self.faults.clone() }))
    }

    async fn settle(&self, batch: BatchId) -> Result<Option<Fence>, StoreError> {
        self.faults.writable().await?;
        self.store.settle(batch).await
    }

    async fn epoch(&self, shard_id: ShardId) -> Result<Epoch, StoreError> {
        self.faults.inner().epoch_reads += 1;
        self.faults.readable().await?;
        let epoch = self.store.epoch(shard_id).await;
        self.faults.travel().await;
        self.faults.thawed().await;
        epoch
    }

    async fn recovery(&self, shard_id: ShardId) -> Result<Recovery, StoreError> {
        self.faults.readable().await?;
        self.faults.travel().await;
        self.store.recovery(shard_id).await
    }

    async fn load_run(&self, shard_id: ShardId, execution_id: ExecutionId) -> Result<Option<StoredRun>, StoreError> {
        self.faults.inner().loads += 1;
        self.faults.readable().await?;
        let run = self.store.load_run(shard_id, execution_id).await;
        self.faults.travel().await;
        run
    }

    async fn find_runs(&self, shard_id: ShardId, keys: &[BusinessKey]) -> Result<Vec<Option<(ExecutionId, Status)>>, StoreError> {
        self.faults.readable().await?;
        let held = self.faults.inner().held_finds;
        let found = self.store.find_runs(shard_id, keys).await;
        if held {
            self.faults.commits.pass().await;
        }
        found
    }

    async fn history(&self, shard_id: ShardId, execution_id: ExecutionId, from: EventId, max_bytes: usize) -> Result<Vec<Bytes>, StoreError> {
        self.faults.readable().await?;
        self.store.history(shard_id, execution_id, from, max_bytes).await
    }

    async fn backlog_queues(&self, shard_id: ShardId) -> Result<Vec<BacklogQueue>, StoreError> {
        self.faults.readable().await?;
        self.faults.travel().await;
        self.store.backlog_queues(shard_id).await
    }

    async fn backlog(&self, shard_id: ShardId, queue: &BacklogQueue, after: i64, limit: u32) -> Result<Vec<TaskRow>, StoreError> {
        self.faults.readable().await?;
        let rows = self.store.backlog(shard_id, queue, after, limit).await;
        // What commits while the answer is on its way is not in it.
        self.faults.travel().await;
        rows
    }

    async fn outbox(&self, shard_id: ShardId, after: i64, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        self.faults.readable().await?;
        let rows = self.store.outbox(shard_id, after, limit).await;
        self.faults.travel().await;
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
        faults.travel().await;
        faults.commits.pass().await;
        faults.thawed().await;
        match faults.fate(batch) {
            Fate::Poisoned if !batch.history.is_empty() => Err(CommitError::Poisoned("made to be poisoned".into())),
            Fate::Commits | Fate::Poisoned => {
                writer.commit(id, batch).await?;
                faults.inner().batches.push(batch.clone());
                faults.travel().await;
                // The answer reaches a frozen process when it runs again.
                faults.thawed().await;
                Ok(())
            }
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
                        faults.travel().await;
                        if writer.commit(id, &batch).await.is_ok() {
                            faults.inner().batches.push(batch);
                        }
                    }));
                }
                Err(lost())
            }
        }
    }
}
