//! [`ShardStore`] on SQLite.

use super::EmbeddedStore;
use super::commit::commit;
use super::error::store_error;
use super::rows::{Number, blob, execution_id, get, kind_number, name, query, run_row, status, task_id, task_kind, unsigned};
use crate::batch::{Batch, BatchId, DueRow, OutboxRow, RunRow, TaskId, TaskRow};
use crate::error::{CommitError, StoreError};
use crate::store::{BacklogQueue, BusinessKey, Fence, Recovery, RunFilter, ShardStore, ShardWriter, StoredRun};
use async_trait::async_trait;
use bytes::Bytes;
use harvest_ids::{Epoch, EventId, ExecutionId, ShardId, Timestamp, WorkflowType};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::state::Status;
use rusqlite::{Connection, Params, Row, params};

fn unknown_shard(shard_id: ShardId) -> StoreError {
    StoreError::Refused(format!("shard {shard_id} does not exist"))
}

fn first<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}

fn raise(connection: &Connection, sql: &str, values: impl Params) -> Result<Option<Fence>, StoreError> {
    let read = |row: &Row<'_>| Ok(Fence { epoch: Epoch(unsigned(row, 0)?), batch_seq: unsigned(row, 1)? });
    query(connection, sql, values, read).map(first)
}

fn bytes(row: &Row<'_>, index: usize) -> Result<Bytes, StoreError> {
    get::<Vec<u8>>(row, index).map(Bytes::from)
}

/// Numbers beyond SQLite's integers are after everything stored.
fn position(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[async_trait]
impl ShardStore for EmbeddedStore {
    async fn take_over(&self, shard_id: ShardId) -> Result<Fence, StoreError> {
        let fence = self.engine.write(move |connection| raise(connection, include_str!("shard/take.sql"), [shard_id.0])).await?;
        fence.ok_or_else(|| unknown_shard(shard_id))
    }

    async fn open_writer(&self, _shard_id: ShardId, _epoch: Epoch) -> Result<Box<dyn ShardWriter>, StoreError> {
        Ok(Box::new(EmbeddedWriter { store: self.clone(), given_up: false }))
    }

    async fn settle(&self, batch: BatchId) -> Result<Option<Fence>, StoreError> {
        // Behind the batch in the writer's queue: this waits for it.
        let (shard, epoch) = (batch.shard_id.0, batch.epoch.0);
        self.engine.write(move |connection| raise(connection, include_str!("shard/settle.sql"), params![shard, Number(epoch)])).await
    }

    async fn epoch(&self, shard_id: ShardId) -> Result<Epoch, StoreError> {
        let read = |row: &Row<'_>| unsigned(row, 0).map(Epoch);
        let epoch = self.engine.read(|connection| query(connection, include_str!("shard/epoch.sql"), [shard_id.0], read).map(first))?;
        epoch.ok_or_else(|| unknown_shard(shard_id))
    }

    async fn recovery(&self, shard_id: ShardId) -> Result<Recovery, StoreError> {
        let read = |row: &Row<'_>| Ok(Recovery { last_task_sequence: get(row, 0)?, last_outbox_sequence: get(row, 1)? });
        let found = self.engine.read(|connection| query(connection, include_str!("shard/recovery.sql"), [shard_id.0], read).map(first))?;
        Ok(found.unwrap_or_default())
    }

    async fn load_run(&self, shard_id: ShardId, execution_id: ExecutionId) -> Result<Option<StoredRun>, StoreError> {
        self.engine.read(|connection| load(connection, shard_id, execution_id))
    }

    async fn find_runs(&self, shard_id: ShardId, keys: &[BusinessKey]) -> Result<Vec<Option<(ExecutionId, Status)>>, StoreError> {
        let read = |row: &Row<'_>| Ok((execution_id(row, 0)?, status(row, 1)?));
        self.engine.read(|connection| {
            let find = |key: &BusinessKey| {
                let values = params![shard_id.0, key.namespace.as_str(), key.workflow_id.as_str(), key.workflow_type.as_str()];
                query(connection, include_str!("run/find.sql"), values, read).map(first)
            };
            keys.iter().map(find).collect()
        })
    }

    async fn history(&self, shard_id: ShardId, execution_id: ExecutionId, from: EventId, max_bytes: usize) -> Result<Vec<Bytes>, StoreError> {
        let fault = |error: rusqlite::Error| store_error(&error);
        self.engine.read(|connection| {
            let mut statement = connection.prepare_cached(include_str!("history/page.sql")).map_err(fault)?;
            let mut rows = statement.query(params![blob(execution_id), shard_id.0, position(from.0)]).map_err(fault)?;
            let (mut found, mut total) = (Vec::new(), 0usize);
            while let Some(row) = rows.next().map_err(fault)? {
                let records = bytes(row, 0)?;
                total = total.saturating_add(records.len());
                found.push(records);
                if total >= max_bytes {
                    break;
                }
            }
            Ok(found)
        })
    }

    async fn backlog_queues(&self, shard_id: ShardId) -> Result<Vec<BacklogQueue>, StoreError> {
        let read = |row: &Row<'_>| Ok(BacklogQueue { namespace: name(row, 0)?, queue: name(row, 1)?, kind: task_kind(row, 2)? });
        self.engine.read(|connection| query(connection, include_str!("task/queues.sql"), [shard_id.0], read))
    }

    async fn backlog(&self, shard_id: ShardId, queue: &BacklogQueue, after: i64, limit: u32) -> Result<Vec<TaskRow>, StoreError> {
        let values = params![shard_id.0, queue.namespace.as_str(), queue.queue.as_str(), kind_number(queue.kind), after, limit];
        let read =
            |row: &Row<'_>| Ok(TaskRow { task: task_id(row, 0)?, sequence: get(row, 1)?, namespace: queue.namespace.clone(), queue: queue.queue.clone() });
        self.engine.read(|connection| query(connection, include_str!("task/backlog.sql"), values, read))
    }

    async fn outbox(&self, shard_id: ShardId, after: i64, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        let read = |row: &Row<'_>| Ok(OutboxRow { sequence: get(row, 0)?, target: execution_id(row, 1)?, message: bytes(row, 2)? });
        self.engine.read(|connection| query(connection, include_str!("outbox/page.sql"), params![shard_id.0, after, limit], read))
    }

    async fn due(&self, shards: &[ShardId], until: Timestamp, limit: u32) -> Result<Vec<(ShardId, DueRow)>, StoreError> {
        self.engine.read(|connection| {
            let mut found = Vec::new();
            for shard in shards {
                let read = |row: &Row<'_>| Ok((*shard, DueRow { execution_id: execution_id(row, 0)?, due_at: Timestamp::from_millis(get(row, 1)?) }));
                found.extend(query(connection, include_str!("due/until.sql"), params![shard.0, until.as_millis(), limit], read)?);
            }
            found.sort_by_key(|(_, due)| due.due_at);
            found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(found)
        })
    }

    async fn list(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let namespace = filter.namespace.as_str();
        let status = filter.status.map(Status::as_str);
        let kind = filter.workflow_type.as_ref().map(WorkflowType::as_str);
        let (started_at, last) = filter.after.map_or((i64::MAX, [0xff; 16]), |(at, id)| (at.as_millis(), blob(id)));
        self.engine.read(|connection| match &filter.workflow_id {
            None => query(
                connection,
                include_str!("run/list.sql"),
                params![namespace, status, kind, started_at, last, filter.limit, filter.paused, filter.sla_breached],
                run_row,
            ),
            Some(id) => {
                let values = params![namespace, status, kind, started_at, last, filter.limit, id.as_str(), filter.paused, filter.sla_breached];
                query(connection, include_str!("run/list_by_workflow_id.sql"), values, run_row)
            }
        })
    }
}

fn load(connection: &Connection, shard_id: ShardId, execution_id: ExecutionId) -> Result<Option<StoredRun>, StoreError> {
    let key = params![blob(execution_id), shard_id.0];
    let Some(row) = first(query(connection, include_str!("run/load.sql"), key, run_row)?) else { return Ok(None) };
    let records = query(connection, include_str!("history/all.sql"), key, |row| bytes(row, 0))?;
    let bound = |key| TaskId { execution_id, key }.to_bytes();
    let tasks = query(
        connection,
        include_str!("task/of_run.sql"),
        params![bound(TaskKey::Workflow), bound(TaskKey::Activity(EventId(u64::MAX))), shard_id.0],
        |row| Ok(TaskRow { task: task_id(row, 0)?, sequence: get(row, 1)?, namespace: name(row, 2)?, queue: name(row, 3)? }),
    )?;
    let due_at = first(query(connection, include_str!("due/of_run.sql"), key, |row| get(row, 0).map(Timestamp::from_millis))?);
    Ok(Some(StoredRun { row, records, tasks, due_at }))
}

/// See [`ShardWriter`]. Commits of one shard come in order because they wait for each other.
struct EmbeddedWriter {
    store: EmbeddedStore,
    /// A commit was given up midway or its outcome is unknown: nothing more before the engine has settled that.
    given_up: bool,
}

#[async_trait]
impl ShardWriter for EmbeddedWriter {
    async fn commit(&mut self, id: BatchId, batch: &Batch) -> Result<(), CommitError> {
        if self.given_up {
            return Err(CommitError::Unknown("an earlier commit of this writer was given up midway".into()));
        }
        self.given_up = true;
        let batch = batch.clone();
        let outcome = self.store.engine.write(move |connection| commit(connection, id, &batch)).await;
        self.given_up = matches!(outcome, Err(CommitError::Unknown(_)));
        outcome
    }
}
