//! A batch as the arrays that the statement takes, in the order of its parameters.

use super::rows::{kind_number, kind_of};
use super::sessions::Query;
use super::{bigint, writer::COMMIT};
use crate::batch::{Batch, BatchId, HistoryRow, OutboxRow, RunMutable, RunRow, RunUpdate, TaskRow};
use crate::error::CommitError;
use harvest_ids::{ExecutionId, Timestamp};
use uuid::Uuid;

/// Binds a batch to [`COMMIT`].
///
/// # Errors
/// [`CommitError::Poisoned`] when a number is beyond Postgres' types.
pub(super) fn bind(id: BatchId, batch: &Batch) -> Result<Query<'_>, CommitError> {
    let shard = i32::try_from(id.shard_id.0).map_err(|_| beyond("shard_id", id.shard_id))?;
    let query = sqlx::query(COMMIT).bind(shard).bind(number("epoch", id.epoch.0)?).bind(number("batch_seq", id.batch_seq)?);
    let query = runs_changed(query, &batch.runs_changed)?;
    let query = runs_new(query, &batch.runs_new)?;
    let query = history(query, &batch.history)?;
    let query = query.bind(batch.tasks_gone.iter().map(|task| task.to_bytes()).collect::<Vec<_>>());
    let query = tasks_new(query, &batch.tasks_new);
    let query = query
        .bind(uuids(batch.due_changed.iter().map(|due| due.execution_id)))
        .bind(batch.due_changed.iter().map(|due| due.due_at.as_millis()).collect::<Vec<_>>())
        .bind(uuids(batch.due_gone.iter().copied()))
        .bind(uuids(batch.due_new.iter().map(|due| due.execution_id)))
        .bind(batch.due_new.iter().map(|due| due.due_at.as_millis()).collect::<Vec<_>>())
        .bind(batch.outbox_gone.as_slice());
    Ok(outbox_new(query, &batch.outbox_new))
}

fn beyond(what: &str, value: impl std::fmt::Display) -> CommitError {
    CommitError::Poisoned(format!("{what} {value} is beyond what the database can hold"))
}

fn number(what: &str, value: u64) -> Result<i64, CommitError> {
    bigint(value).ok_or_else(|| beyond(what, value))
}

fn numbers(what: &str, values: impl Iterator<Item = u64>) -> Result<Vec<i64>, CommitError> {
    values.map(|value| number(what, value)).collect()
}

fn counts(what: &str, values: impl Iterator<Item = u32>) -> Result<Vec<i32>, CommitError> {
    values.map(|value| i32::try_from(value).map_err(|_| beyond(what, value))).collect()
}

fn uuids(ids: impl Iterator<Item = ExecutionId>) -> Vec<Uuid> {
    ids.map(|id| id.as_uuid()).collect()
}

fn optional_uuids(ids: impl Iterator<Item = Option<ExecutionId>>) -> Vec<Option<Uuid>> {
    ids.map(|id| id.map(|id| id.as_uuid())).collect()
}

fn instants(instants: impl Iterator<Item = Option<Timestamp>>) -> Vec<Option<i64>> {
    instants.map(|at| at.map(Timestamp::as_millis)).collect()
}

/// The nine columns that change, in the order both branches have them.
fn mutable<'q>(query: Query<'q>, rows: impl Iterator<Item = &'q RunMutable> + Clone) -> Result<Query<'q>, CommitError> {
    Ok(query
        .bind(rows.clone().map(|row| row.status.as_str()).collect::<Vec<_>>())
        .bind(instants(rows.clone().map(|row| row.closed_at)))
        .bind(numbers("last_event", rows.clone().map(|row| row.last_event.0))?)
        .bind(optional_uuids(rows.clone().map(|row| row.continued_as)))
        .bind(instants(rows.clone().map(|row| row.blocked_at)))
        .bind(rows.clone().map(|row| row.blocked_reason.as_ref().map(|reason| reason.as_bytes())).collect::<Vec<_>>())
        .bind(instants(rows.clone().map(|row| row.paused_at)))
        .bind(instants(rows.clone().map(|row| row.sla_deadline_at)))
        .bind(instants(rows.map(|row| row.sla_breached_at))))
}

fn runs_changed<'q>(query: Query<'q>, rows: &'q [RunUpdate]) -> Result<Query<'q>, CommitError> {
    mutable(query.bind(uuids(rows.iter().map(|row| row.execution_id))), rows.iter().map(|row| &row.mutable))
}

fn runs_new<'q>(query: Query<'q>, rows: &'q [RunRow]) -> Result<Query<'q>, CommitError> {
    let spans =
        |what: &str, of: fn(&RunRow) -> Option<u64>| rows.iter().map(|row| of(row).map(|ms| number(what, ms)).transpose()).collect::<Result<Vec<_>, _>>();
    let query = query
        .bind(uuids(rows.iter().map(|row| row.execution_id)))
        .bind(rows.iter().map(|row| row.namespace.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.workflow_type.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.workflow_id.as_str()).collect::<Vec<_>>())
        .bind(uuids(rows.iter().map(|row| row.first_execution_id)))
        .bind(optional_uuids(rows.iter().map(|row| row.parent_execution_id)))
        .bind(rows.iter().map(|row| row.task_queue.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.started_at.as_millis()).collect::<Vec<_>>())
        .bind(spans("execution_timeout_ms", |row| row.execution_timeout_ms)?)
        .bind(spans("sla_ms", |row| row.sla_ms)?);
    mutable(query, rows.iter().map(|row| &row.mutable))
}

fn history<'q>(query: Query<'q>, rows: &'q [HistoryRow]) -> Result<Query<'q>, CommitError> {
    Ok(query
        .bind(uuids(rows.iter().map(|row| row.execution_id)))
        .bind(numbers("first_record", rows.iter().map(|row| row.first_record))?)
        .bind(counts("record_count", rows.iter().map(|row| row.record_count))?)
        .bind(numbers("first_event", rows.iter().map(|row| row.first_event.0))?)
        .bind(counts("event_count", rows.iter().map(|row| row.event_count))?)
        .bind(rows.iter().map(|row| &row.records[..]).collect::<Vec<&[u8]>>()))
}

fn tasks_new<'q>(query: Query<'q>, rows: &'q [TaskRow]) -> Query<'q> {
    query
        .bind(rows.iter().map(|row| row.task.to_bytes()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.sequence).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| kind_number(kind_of(row.task.key))).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.namespace.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.queue.as_str()).collect::<Vec<_>>())
}

fn outbox_new<'q>(query: Query<'q>, rows: &'q [OutboxRow]) -> Query<'q> {
    query
        .bind(rows.iter().map(|row| row.sequence).collect::<Vec<_>>())
        .bind(uuids(rows.iter().map(|row| row.target)))
        .bind(rows.iter().map(|row| &row.message[..]).collect::<Vec<&[u8]>>())
}
