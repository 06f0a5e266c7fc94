//! [`ShardStore`] on Postgres.

use super::error::store_error;
use super::options::writer_options;
use super::rows::{column, corrupt, epoch, execution_id, kind_number, name, run_row, shard_id as shard_column, status, task_id, task_kind};
use super::sessions::{Query, Session, connect};
use super::writer::PgWriter;
use super::{PgStore, bigint, integer, leaf_sql};
use crate::batch::{BatchId, DueRow, OutboxRow, RunRow, TaskId, TaskRow};
use crate::error::StoreError;
use crate::store::{BacklogQueue, BusinessKey, Fence, Recovery, RunFilter, ShardStore, ShardWriter, StoredRun};
use async_trait::async_trait;
use bytes::Bytes;
use harvest_ids::{Epoch, EventId, ExecutionId, Namespace, ShardId, Timestamp, WorkflowType};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::state::Status;
use sqlx::postgres::PgRow;
use uuid::Uuid;

/// The most history rows of one page, whatever their bytes.
const HISTORY_ROWS: i64 = 1024;

/// The largest task key of a run.
const LAST_TASK: TaskKey = TaskKey::Activity(EventId(u64::MAX));

impl PgStore {
    async fn session(&self) -> Result<Session, StoreError> {
        self.sessions.take().await
    }
}

fn unknown_shard(shard_id: ShardId) -> StoreError {
    StoreError::Refused(format!("shard {shard_id} does not exist"))
}

/// A position as Postgres' `bigint`; what is beyond it is after everything stored.
fn position(value: u64) -> i64 {
    bigint(value).unwrap_or(i64::MAX)
}

#[async_trait]
impl ShardStore for PgStore {
    async fn take_over(&self, shard_id: ShardId) -> Result<Fence, StoreError> {
        let shard = integer(shard_id)?;
        let fence = self.raise(shard_id, || sqlx::query(include_str!("shard/take.sql")).bind(shard)).await?;
        fence.ok_or_else(|| unknown_shard(shard_id))
    }

    async fn open_writer(&self, shard_id: ShardId, epoch: Epoch) -> Result<Box<dyn ShardWriter>, StoreError> {
        let options = writer_options(self.connect.clone(), &self.options, shard_id, epoch);
        let connection = connect(&options, self.options.connect_timeout).await.map_err(|error| store_error(&error))?;
        let prepared = tokio::time::timeout(self.options.answer_timeout(), PgWriter::new(connection, self.options.answer_timeout())).await;
        let writer = prepared.map_err(|_| StoreError::Unavailable("no answer to the preparation of the batch statement".into()))?;
        Ok(Box::new(writer.map_err(|error| store_error(&error))?))
    }

    async fn settle(&self, batch: BatchId) -> Result<Option<Fence>, StoreError> {
        let shard = integer(batch.shard_id)?;
        let mine = bigint(batch.epoch.0).ok_or_else(|| corrupt("epoch", batch.epoch))?;
        self.raise(batch.shard_id, || sqlx::query(include_str!("shard/settle.sql")).bind(shard).bind(mine)).await
    }

    async fn epoch(&self, shard_id: ShardId) -> Result<Epoch, StoreError> {
        let query = sqlx::query(include_str!("shard/epoch.sql")).bind(integer(shard_id)?);
        let row = self.session().await?.fetch_optional(query).await?;
        epoch(&row.ok_or_else(|| unknown_shard(shard_id))?)
    }

    async fn recovery(&self, shard_id: ShardId) -> Result<Recovery, StoreError> {
        let query = sqlx::query(leaf_sql(include_str!("shard/recovery.sql"), shard_id));
        let row = self.session().await?.fetch_one(query).await?;
        Ok(Recovery { last_task_sequence: column(&row, "last_task_sequence")?, last_outbox_sequence: column(&row, "last_outbox_sequence")? })
    }

    async fn load_run(&self, shard_id: ShardId, execution_id: ExecutionId) -> Result<Option<StoredRun>, StoreError> {
        let bound = |key| TaskId { execution_id, key }.to_bytes();
        let query =
            sqlx::query(leaf_sql(include_str!("run/load.sql"), shard_id)).bind(execution_id.as_uuid()).bind(bound(TaskKey::Workflow)).bind(bound(LAST_TASK));
        let row = self.session().await?.fetch_optional(query).await?;
        row.as_ref().map(stored_run).transpose()
    }

    async fn find_runs(&self, shard_id: ShardId, keys: &[BusinessKey]) -> Result<Vec<Option<(ExecutionId, Status)>>, StoreError> {
        let texts = |text: fn(&BusinessKey) -> &str| keys.iter().map(text).map(str::to_owned).collect::<Vec<_>>();
        let query = sqlx::query(leaf_sql(include_str!("run/find.sql"), shard_id))
            .bind(texts(|key| key.namespace.as_str()))
            .bind(texts(|key| key.workflow_id.as_str()))
            .bind(texts(|key| key.workflow_type.as_str()));
        let mut found = vec![None; keys.len()];
        for row in self.session().await?.fetch_all(query).await? {
            let position: i64 = column(&row, "position")?;
            let place = usize::try_from(position - 1).ok().and_then(|at| found.get_mut(at)).ok_or_else(|| corrupt("position", position))?;
            *place = Some((execution_id(column(&row, "execution_id")?)?, status(column(&row, "status")?)?));
        }
        Ok(found)
    }

    async fn history(&self, shard_id: ShardId, execution_id: ExecutionId, from: EventId, max_bytes: usize) -> Result<Vec<Bytes>, StoreError> {
        let query = sqlx::query(leaf_sql(include_str!("history/page.sql"), shard_id))
            .bind(execution_id.as_uuid())
            .bind(position(from.0))
            .bind(i64::try_from(max_bytes).unwrap_or(i64::MAX))
            .bind(HISTORY_ROWS);
        let rows = self.session().await?.fetch_all(query).await?;
        rows.iter().map(|row| Ok(Bytes::from(column::<Vec<u8>>(row, "records")?))).collect()
    }

    async fn backlog_queues(&self, shard_id: ShardId) -> Result<Vec<BacklogQueue>, StoreError> {
        let query = sqlx::query(leaf_sql(include_str!("task/queues.sql"), shard_id));
        let rows = self.session().await?.fetch_all(query).await?;
        rows.iter().map(|row| Ok(BacklogQueue { namespace: name(row, "namespace")?, queue: name(row, "queue")?, kind: task_kind(row)? })).collect()
    }

    async fn backlog(&self, shard_id: ShardId, queue: &BacklogQueue, after: i64, limit: u32) -> Result<Vec<TaskRow>, StoreError> {
        let query = sqlx::query(leaf_sql(include_str!("task/backlog.sql"), shard_id))
            .bind(queue.namespace.as_str())
            .bind(queue.queue.as_str())
            .bind(kind_number(queue.kind))
            .bind(after)
            .bind(i64::from(limit));
        let rows = self.session().await?.fetch_all(query).await?;
        rows.iter()
            .map(|row| {
                let task = task_id(column(row, "task_id")?)?;
                Ok(TaskRow { task, sequence: column(row, "sequence")?, namespace: queue.namespace.clone(), queue: queue.queue.clone() })
            })
            .collect()
    }

    async fn outbox(&self, shard_id: ShardId, after: i64, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        let query = sqlx::query(leaf_sql(include_str!("outbox/page.sql"), shard_id)).bind(after).bind(i64::from(limit));
        let rows = self.session().await?.fetch_all(query).await?;
        rows.iter()
            .map(|row| {
                let target = execution_id(column(row, "target")?)?;
                Ok(OutboxRow { sequence: column(row, "sequence")?, target, message: column::<Vec<u8>>(row, "message")?.into() })
            })
            .collect()
    }

    async fn due(&self, shards: &[ShardId], until: Timestamp, limit: u32) -> Result<Vec<(ShardId, DueRow)>, StoreError> {
        let shards = shards.iter().map(|shard| integer(*shard)).collect::<Result<Vec<_>, _>>()?;
        let query = sqlx::query(include_str!("due/until.sql")).bind(shards).bind(until.as_millis()).bind(i64::from(limit));
        let rows = self.session().await?.fetch_all(query).await?;
        rows.iter()
            .map(|row| {
                let due = DueRow { execution_id: execution_id(column(row, "execution_id")?)?, due_at: Timestamp::from_millis(column(row, "due_at")?) };
                Ok((shard_column(row)?, due))
            })
            .collect()
    }

    async fn list(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.session().await?.fetch_all(list_query(filter)).await?;
        rows.iter().map(run_row).collect()
    }
}

fn list_query(filter: &RunFilter) -> Query<'_> {
    let (started_at, last) = filter.after.map_or((i64::MAX, Uuid::max()), |(at, id)| (at.as_millis(), id.as_uuid()));
    let text = match filter {
        RunFilter { workflow_id: Some(_), .. } => include_str!("run/list_by_workflow_id.sql"),
        RunFilter { sla_breached: Some(true), .. } => include_str!("run/list_late.sql"),
        RunFilter { paused: Some(true), .. } => include_str!("run/list_paused.sql"),
        RunFilter { .. } => include_str!("run/list.sql"),
    };
    let query = sqlx::query(text)
        .bind(filter.namespace.as_str())
        .bind(filter.status.map(Status::as_str))
        .bind(filter.workflow_type.as_ref().map(WorkflowType::as_str))
        .bind(started_at)
        .bind(last)
        .bind(i64::from(filter.limit));
    let query = match &filter.workflow_id {
        Some(workflow_id) => query.bind(workflow_id.as_str()),
        None => query,
    };
    query.bind(filter.paused).bind(filter.sla_breached)
}

fn stored_run(row: &PgRow) -> Result<StoredRun, StoreError> {
    let run = run_row(row)?;
    let records: Vec<Vec<u8>> = column(row, "records")?;
    let due_at: Option<i64> = column(row, "due_at")?;
    let ids: Vec<Vec<u8>> = column(row, "task_ids")?;
    let sequences: Vec<i64> = column(row, "task_sequences")?;
    let namespaces: Vec<String> = column(row, "task_namespaces")?;
    let queues: Vec<String> = column(row, "task_queues")?;
    let mut tasks = Vec::with_capacity(ids.len());
    for (((id, sequence), namespace), queue) in ids.iter().zip(sequences).zip(namespaces).zip(queues) {
        let namespace = Namespace::new(namespace).map_err(|error| corrupt("task namespace", error))?;
        let queue = harvest_ids::TaskQueue::new(queue).map_err(|error| corrupt("task queue", error))?;
        tasks.push(TaskRow { task: task_id(id)?, sequence, namespace, queue });
    }
    Ok(StoredRun { row: run, records: records.into_iter().map(Bytes::from).collect(), tasks, due_at: due_at.map(Timestamp::from_millis) })
}
