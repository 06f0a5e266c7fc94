//! Reading rows back. What does not fit its type is damage, and says so.

use crate::batch::{RunMutable, RunRow, TaskId};
use crate::error::StoreError;
use crate::store::TaskKind;
use harvest_ids::{Epoch, EventId, ExecutionId, ShardId, Timestamp};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::state::Status;
use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row, Type};
use std::fmt::Display;
use uuid::Uuid;

pub(super) fn corrupt(what: &str, why: impl Display) -> StoreError {
    StoreError::Corrupt(format!("{what}: {why}"))
}

pub(super) fn column<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| corrupt(name, error))
}

pub(super) fn unsigned(row: &PgRow, name: &str) -> Result<u64, StoreError> {
    let value: i64 = column(row, name)?;
    u64::try_from(value).map_err(|error| corrupt(name, error))
}

/// A text column as one of the newtypes.
pub(super) fn name<T: TryFrom<String, Error: Display>>(row: &PgRow, column_name: &str) -> Result<T, StoreError> {
    T::try_from(column::<String>(row, column_name)?).map_err(|error| corrupt(column_name, error))
}

pub(super) fn execution_id(id: Uuid) -> Result<ExecutionId, StoreError> {
    ExecutionId::from_uuid(id).map_err(|error| corrupt("execution_id", error))
}

fn optional_execution_id(row: &PgRow, name: &str) -> Result<Option<ExecutionId>, StoreError> {
    column::<Option<Uuid>>(row, name)?.map(execution_id).transpose()
}

fn optional_instant(row: &PgRow, name: &str) -> Result<Option<Timestamp>, StoreError> {
    Ok(column::<Option<i64>>(row, name)?.map(Timestamp::from_millis))
}

pub(super) fn status(text: &str) -> Result<Status, StoreError> {
    Status::parse(text).ok_or_else(|| corrupt("status", format!("{text:?} is no status")))
}

pub(super) fn shard_id(row: &PgRow) -> Result<ShardId, StoreError> {
    let value: i32 = column(row, "shard_id")?;
    u32::try_from(value).map(ShardId).map_err(|error| corrupt("shard_id", error))
}

pub(super) fn epoch(row: &PgRow) -> Result<Epoch, StoreError> {
    Ok(Epoch(unsigned(row, "epoch")?))
}

/// A row with the columns of `run`.
pub(super) fn run_row(row: &PgRow) -> Result<RunRow, StoreError> {
    let timeout: Option<i64> = column(row, "execution_timeout_ms")?;
    let reason: Option<Vec<u8>> = column(row, "blocked_reason")?;
    Ok(RunRow {
        execution_id: execution_id(column(row, "execution_id")?)?,
        namespace: name(row, "namespace")?,
        workflow_type: name(row, "workflow_type")?,
        workflow_id: name(row, "workflow_id")?,
        first_execution_id: execution_id(column(row, "first_execution_id")?)?,
        parent_execution_id: optional_execution_id(row, "parent_execution_id")?,
        task_queue: name(row, "task_queue")?,
        started_at: Timestamp::from_millis(column(row, "started_at")?),
        execution_timeout_ms: timeout.map(u64::try_from).transpose().map_err(|error| corrupt("execution_timeout_ms", error))?,
        sla_ms: column::<Option<i64>>(row, "sla_ms")?.map(u64::try_from).transpose().map_err(|error| corrupt("sla_ms", error))?,
        mutable: RunMutable {
            status: status(column(row, "status")?)?,
            closed_at: optional_instant(row, "closed_at")?,
            last_event: EventId(unsigned(row, "last_event")?),
            continued_as: optional_execution_id(row, "continued_as")?,
            blocked_at: optional_instant(row, "blocked_at")?,
            blocked_reason: reason.map(String::from_utf8).transpose().map_err(|error| corrupt("blocked_reason", error))?,
            paused_at: optional_instant(row, "paused_at")?,
            sla_deadline_at: optional_instant(row, "sla_deadline_at")?,
            sla_breached_at: optional_instant(row, "sla_breached_at")?,
        },
    })
}

pub(super) fn task_id(bytes: &[u8]) -> Result<TaskId, StoreError> {
    TaskId::from_bytes(bytes).ok_or_else(|| corrupt("task_id", format!("{bytes:?} names no task")))
}

/// The `kind` column of a task.
pub(super) fn kind_number(kind: TaskKind) -> i16 {
    match kind {
        TaskKind::Workflow => 0,
        TaskKind::Activity => 1,
    }
}

pub(super) fn kind_of(key: TaskKey) -> TaskKind {
    match key {
        TaskKey::Workflow => TaskKind::Workflow,
        TaskKey::Activity(_) => TaskKind::Activity,
    }
}

pub(super) fn task_kind(row: &PgRow) -> Result<TaskKind, StoreError> {
    match column::<i16>(row, "kind")? {
        0 => Ok(TaskKind::Workflow),
        1 => Ok(TaskKind::Activity),
        other => Err(corrupt("kind", format!("{other} is no kind of task"))),
    }
}
