//! A host's way to the database: round trips take time, fail, and lose their answers.

use crate::clock::sleep;
use crate::world::{Fate, Host, World};
use async_trait::async_trait;
use bytes::Bytes;
use harvest_ids::{Epoch, EventId, ExecutionId, ShardId, Timestamp, WorkerId};
use harvest_persistence::batch::{Batch, BatchId, DueRow, OutboxRow, RunRow, TaskRow};
use harvest_persistence::control::{Acknowledgement, ConfigStore, DirectoryStore, Lease, LimitsChange, Member, StoredLimits, StoredType, StoredWorker};
use harvest_persistence::error::{CommitError, StoreError};
use harvest_persistence::store::{BacklogQueue, BusinessKey, Fence, Recovery, RunFilter, ShardStore, ShardWriter, StoredRun};
use harvest_workflow_core::state::Status;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// How long a statement that gets no answer is waited for.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// How far a stamp may be ahead of the database's clock: half of the longest look at it that counts.
const STAMPED_AHEAD_MS: i64 = 600;
/// How far it may be behind: the longest that a decision is kept for its commit, and the same again.
const STAMPED_BEHIND_MS: i64 = 20_000;

/// A host's sessions.
#[derive(Clone)]
pub struct Sessions {
    pub world: Arc<World>,
    pub host: Arc<Host>,
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("made to fail".to_owned())
}

impl Sessions {
    /// One way of a round trip.
    async fn travel(&self) {
        let slow = self.host.dice.one_in(60);
        sleep(self.host.dice.millis(if slow { 60 } else { 2 })).await;
    }

    /// Waits until statements pass; false when that takes too long.
    async fn passes(&self) -> bool {
        tokio::time::timeout(STATEMENT_TIMEOUT, self.host.pass()).await.is_ok()
    }

    /// One statement.
    async fn call<T>(&self, what: &str, statement: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.world.detail(format_args!("{} asks the database: {what}", self.host.name));
        if !self.passes().await || (self.host.is_failing() && self.host.dice.one_in(2)) {
            return Err(unavailable());
        }
        self.travel().await;
        let result = statement.await;
        self.travel().await;
        // Done, and the answer is lost.
        if self.host.is_failing() || !self.passes().await { Err(unavailable()) } else { result }
    }

    /// Whatever a host's own clock shows, runs are stamped with the database's time: never ahead of it, and not by more behind than a decision
    /// waits for its commit.
    fn judge_stamps(&self, batch: &Batch) {
        let now = self.world.now().as_millis();
        for row in &batch.runs_new {
            let behind = now - row.started_at.as_millis();
            if !(-STAMPED_AHEAD_MS..=STAMPED_BEHIND_MS).contains(&behind) {
                self.world
                    .ledger()
                    .violations
                    .push(format!("{} stamps run {} with a time {behind} ms behind the database's", self.host.name, row.execution_id));
            }
        }
    }

    /// One statement that changes something.
    async fn change<T: std::fmt::Debug>(&self, what: String, statement: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.call("change", async {
            let result = statement.await;
            self.world.note(format_args!("{} {what}: {result:?}", self.host.name));
            result
        })
        .await
    }
}

#[async_trait]
impl ShardStore for Sessions {
    async fn take_over(&self, shard_id: ShardId) -> Result<Fence, StoreError> {
        self.change(format!("takes shard {shard_id} over"), self.world.store.take_over(shard_id)).await
    }

    async fn open_writer(&self, shard_id: ShardId, epoch: Epoch) -> Result<Box<dyn ShardWriter>, StoreError> {
        let writer = self.call("open_writer", self.world.store.open_writer(shard_id, epoch)).await?;
        Ok(Box::new(Writer { writer: Some(writer), sessions: self.clone() }))
    }

    async fn settle(&self, batch: BatchId) -> Result<Option<Fence>, StoreError> {
        self.change(format!("settles {batch:?}"), self.world.store.settle(batch)).await
    }

    async fn epoch(&self, shard_id: ShardId) -> Result<Epoch, StoreError> {
        self.call("epoch", self.world.store.epoch(shard_id)).await
    }

    async fn recovery(&self, shard_id: ShardId) -> Result<Recovery, StoreError> {
        self.call("recovery", self.world.store.recovery(shard_id)).await
    }

    async fn load_run(&self, shard_id: ShardId, execution_id: ExecutionId) -> Result<Option<StoredRun>, StoreError> {
        self.call("load_run", self.world.store.load_run(shard_id, execution_id)).await
    }

    async fn find_runs(&self, shard_id: ShardId, keys: &[BusinessKey]) -> Result<Vec<Option<(ExecutionId, Status)>>, StoreError> {
        self.call("find_runs", self.world.store.find_runs(shard_id, keys)).await
    }

    async fn history(&self, shard_id: ShardId, execution_id: ExecutionId, from: EventId, max_bytes: usize) -> Result<Vec<Bytes>, StoreError> {
        self.call("history", self.world.store.history(shard_id, execution_id, from, max_bytes)).await
    }

    async fn backlog_queues(&self, shard_id: ShardId) -> Result<Vec<BacklogQueue>, StoreError> {
        self.call("backlog_queues", self.world.store.backlog_queues(shard_id)).await
    }

    async fn backlog(&self, shard_id: ShardId, queue: &BacklogQueue, after: i64, limit: u32) -> Result<Vec<TaskRow>, StoreError> {
        self.call("backlog", self.world.store.backlog(shard_id, queue, after, limit)).await
    }

    async fn outbox(&self, shard_id: ShardId, after: i64, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        self.call("outbox", self.world.store.outbox(shard_id, after, limit)).await
    }

    async fn due(&self, shards: &[ShardId], until: Timestamp, limit: u32) -> Result<Vec<(ShardId, DueRow)>, StoreError> {
        self.call("due", self.world.store.due(shards, until, limit)).await
    }

    async fn list(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.call("list", self.world.store.list(filter)).await
    }
}

/// A shard's connection.
struct Writer {
    /// Gone once a commit's answer was lost: that connection is dead.
    writer: Option<Box<dyn ShardWriter>>,
    sessions: Sessions,
}

impl Writer {
    async fn write(&mut self, id: BatchId, batch: &Batch) -> Result<(), CommitError> {
        let Some(writer) = &mut self.writer else { return Err(lost()) };
        let result = writer.commit(id, batch).await;
        let (world, host) = (&self.sessions.world, self.sessions.host.name);
        let content = xxh3_64(format!("{batch:?}").as_bytes());
        world.note(format_args!("{host} commits {id:?} {content:x}: {result:?}"));
        result
    }

    /// The statement is on its way and lands some time, whatever becomes of its sender.
    fn write_later(&mut self, id: BatchId, batch: &Batch) {
        let Some(mut writer) = self.writer.take() else { return };
        let (world, batch, delay) = (self.sessions.world.clone(), batch.clone(), self.sessions.host.dice.millis(300));
        let statement = async move {
            sleep(delay).await;
            let result = writer.commit(id, &batch).await;
            world.note(format_args!("late commit {id:?}: {result:?}"));
        };
        // A full queue drops it: then it never lands.
        drop(self.sessions.world.late.try_send(Box::pin(statement)));
    }
}

fn lost() -> CommitError {
    CommitError::Unknown("made to be unknown".to_owned())
}

#[async_trait]
impl ShardWriter for Writer {
    async fn commit(&mut self, id: BatchId, batch: &Batch) -> Result<(), CommitError> {
        let sessions = self.sessions.clone();
        sessions.world.detail(format_args!("{} asks the database: commit {id:?}", sessions.host.name));
        if self.writer.is_none() {
            return Err(lost());
        }
        sessions.judge_stamps(batch);
        sessions.travel().await;
        if !sessions.passes().await {
            self.write_later(id, batch);
            return Err(lost());
        }
        let failing = if sessions.host.is_failing() { Some(if sessions.host.dice.one_in(2) { Fate::UnknownLanded } else { Fate::UnknownLost }) } else { None };
        match sessions.host.next_fate().or(failing) {
            Some(Fate::Poisoned) if !batch.history.is_empty() => Err(CommitError::Poisoned("made to be poisoned".to_owned())),
            None | Some(Fate::Poisoned) => {
                self.write(id, batch).await?;
                sessions.travel().await;
                if sessions.passes().await {
                    return Ok(());
                }
                self.writer = None;
                Err(lost())
            }
            Some(Fate::Unavailable) => Err(CommitError::Unavailable("made to fail".to_owned())),
            Some(Fate::UnknownLanded) => {
                self.write(id, batch).await?;
                self.writer = None;
                Err(lost())
            }
            Some(Fate::UnknownLost) => {
                self.writer = None;
                Err(lost())
            }
            Some(Fate::UnknownLate) => {
                self.write_later(id, batch);
                Err(lost())
            }
        }
    }
}

#[async_trait]
impl DirectoryStore for Sessions {
    async fn announce_member(&self, member: &Member, ttl_ms: u64) -> Result<(), StoreError> {
        self.call("announce_member", self.world.store.announce_member(member, ttl_ms)).await
    }

    async fn remove_member(&self, process_id: &str) -> Result<(), StoreError> {
        self.call("remove_member", self.world.store.remove_member(process_id)).await
    }

    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        self.call("members", self.world.store.members()).await
    }

    async fn check_in(&self, member: &Member, ttl_ms: u64) -> Result<Vec<Member>, StoreError> {
        self.call("check_in", self.world.store.check_in(member, ttl_ms)).await
    }

    async fn now(&self) -> Result<Option<Timestamp>, StoreError> {
        self.call("now", DirectoryStore::now(&self.world.store)).await
    }

    async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.call("leases", self.world.store.leases()).await
    }

    async fn renew_leases(&self, process_id: &str, ttl_ms: u64) -> Result<Vec<ShardId>, StoreError> {
        self.change("renews".to_owned(), self.world.store.renew_leases(process_id, ttl_ms)).await
    }

    async fn acquire_lease(&self, shard_id: ShardId, process_id: &str, address: &str, ttl_ms: u64) -> Result<bool, StoreError> {
        self.change(format!("wants shard {shard_id}"), self.world.store.acquire_lease(shard_id, process_id, address, ttl_ms)).await
    }

    async fn release_lease(&self, shard_id: ShardId, process_id: &str) -> Result<(), StoreError> {
        self.change(format!("releases shard {shard_id}"), self.world.store.release_lease(shard_id, process_id)).await
    }

    async fn transfer_lease(&self, shard_id: ShardId, process_id: &str, to: &Member, ttl_ms: u64) -> Result<bool, StoreError> {
        self.change(format!("hands shard {shard_id} over"), self.world.store.transfer_lease(shard_id, process_id, to, ttl_ms)).await
    }

    async fn slot_map(&self) -> Result<(u64, Vec<ShardId>), StoreError> {
        self.call("slot_map", self.world.store.slot_map()).await
    }
}

#[async_trait]
impl ConfigStore for Sessions {
    async fn limits(&self) -> Result<StoredLimits, StoreError> {
        self.call("limits", self.world.store.limits()).await
    }

    async fn change_limits(&self, change: &LimitsChange) -> Result<Option<StoredLimits>, StoreError> {
        self.change("changes limits".to_owned(), self.world.store.change_limits(change)).await
    }

    async fn acknowledge(&self, acknowledgements: &[Acknowledgement]) -> Result<(), StoreError> {
        self.change(format!("acknowledges {acknowledgements:?}"), self.world.store.acknowledge(acknowledgements)).await
    }

    async fn acknowledgements(&self) -> Result<Vec<(ShardId, Epoch, Option<Acknowledgement>)>, StoreError> {
        self.call("acknowledgements", self.world.store.acknowledgements()).await
    }

    async fn register_types(&self, types: &[StoredType]) -> Result<(), StoreError> {
        self.call("register_types", self.world.store.register_types(types)).await
    }

    async fn types(&self) -> Result<Vec<StoredType>, StoreError> {
        self.call("types", self.world.store.types()).await
    }

    async fn report_workers(&self, seen: &[StoredWorker], ended: &[WorkerId], ttl_ms: u64) -> Result<(), StoreError> {
        self.call("report_workers", self.world.store.report_workers(seen, ended, ttl_ms)).await
    }

    async fn workers(&self, ttl_ms: u64) -> Result<Vec<StoredWorker>, StoreError> {
        self.call("workers", self.world.store.workers(ttl_ms)).await
    }
}
