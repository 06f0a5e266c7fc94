//! Values in and out of rows. What does not fit its type is damage, and says so.

use super::error::store_error;
use crate::batch::{RunMutable, RunRow, TaskId};
use crate::error::StoreError;
use crate::store::TaskKind;
use harvest_ids::{EventId, ExecutionId, ShardId, Timestamp};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::state::Status;
use rusqlite::types::{FromSql, ToSql, ToSqlOutput};
use rusqlite::{Connection, Params, Row};
use std::fmt::Display;
use uuid::Uuid;

pub(super) fn blob(id: ExecutionId) -> [u8; 16] {
    id.as_uuid().into_bytes()
}

pub(super) fn optional_blob(id: Option<ExecutionId>) -> Option<[u8; 16]> {
    id.map(blob)
}

/// A `u64` in SQLite's signed integer; one beyond it is an error of the statement.
pub(super) struct Number(pub(super) u64);

impl ToSql for Number {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = i64::try_from(self.0).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        Ok(ToSqlOutput::from(value))
    }
}

/// All rows of a statement.
pub(super) fn query<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let fault = |error: rusqlite::Error| store_error(&error);
    let mut statement = connection.prepare_cached(sql).map_err(fault)?;
    let mut rows = statement.query(values).map_err(fault)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(fault)? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// Runs a statement that returns nothing; how many rows it wrote.
pub(super) fn execute(connection: &Connection, sql: &str, values: impl Params) -> Result<usize, StoreError> {
    let fault = |error: rusqlite::Error| store_error(&error);
    connection.prepare_cached(sql).map_err(fault)?.execute(values).map_err(fault)
}

pub(super) fn corrupt(what: &str, why: impl Display) -> StoreError {
    StoreError::Corrupt(format!("{what}: {why}"))
}

pub(super) fn get<T: FromSql>(row: &Row<'_>, index: usize) -> Result<T, StoreError> {
    row.get(index).map_err(|error| store_error(&error))
}

pub(super) fn unsigned(row: &Row<'_>, index: usize) -> Result<u64, StoreError> {
    u64::try_from(get::<i64>(row, index)?).map_err(|error| corrupt("number", error))
}

/// A text column as one of the newtypes.
pub(super) fn name<T: TryFrom<String, Error: Display>>(row: &Row<'_>, index: usize) -> Result<T, StoreError> {
    T::try_from(get(row, index)?).map_err(|error| corrupt("name", error))
}

fn id_of(bytes: [u8; 16]) -> Result<ExecutionId, StoreError> {
    ExecutionId::from_uuid(Uuid::from_bytes(bytes)).map_err(|error| corrupt("execution_id", error))
}

pub(super) fn execution_id(row: &Row<'_>, index: usize) -> Result<ExecutionId, StoreError> {
    id_of(get(row, index)?)
}

fn optional_execution_id(row: &Row<'_>, index: usize) -> Result<Option<ExecutionId>, StoreError> {
    get::<Option<[u8; 16]>>(row, index)?.map(id_of).transpose()
}

pub(super) fn status(row: &Row<'_>, index: usize) -> Result<Status, StoreError> {
    let text: String = get(row, index)?;
    Status::parse(&text).ok_or_else(|| corrupt("status", format!("{text:?} is no status")))
}

pub(super) fn shard_id(row: &Row<'_>, index: usize) -> Result<ShardId, StoreError> {
    Ok(ShardId(get(row, index)?))
}

fn optional_instant(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>, StoreError> {
    Ok(get::<Option<i64>>(row, index)?.map(Timestamp::from_millis))
}

/// A row with the columns of `run/load.sql`.
pub(super) fn run_row(row: &Row<'_>) -> Result<RunRow, StoreError> {
    let reason: Option<Vec<u8>> = get(row, 14)?;
    let timeout: Option<i64> = get(row, 8)?;
    Ok(RunRow {
        execution_id: execution_id(row, 0)?,
        namespace: name(row, 1)?,
        workflow_type: name(row, 2)?,
        workflow_id: name(row, 3)?,
        first_execution_id: execution_id(row, 4)?,
        parent_execution_id: optional_execution_id(row, 5)?,
        task_queue: name(row, 6)?,
        started_at: Timestamp::from_millis(get(row, 7)?),
        execution_timeout_ms: timeout.map(u64::try_from).transpose().map_err(|error| corrupt("execution_timeout_ms", error))?,
        sla_ms: get::<Option<i64>>(row, 18)?.map(u64::try_from).transpose().map_err(|error| corrupt("sla_ms", error))?,
        mutable: RunMutable {
            status: status(row, 9)?,
            closed_at: optional_instant(row, 10)?,
            last_event: EventId(unsigned(row, 11)?),
            continued_as: optional_execution_id(row, 12)?,
            blocked_at: optional_instant(row, 13)?,
            blocked_reason: reason.map(String::from_utf8).transpose().map_err(|error| corrupt("blocked_reason", error))?,
            paused_at: optional_instant(row, 15)?,
            sla_deadline_at: optional_instant(row, 16)?,
            sla_breached_at: optional_instant(row, 17)?,
        },
    })
}

pub(super) fn task_id(row: &Row<'_>, index: usize) -> Result<TaskId, StoreError> {
    let bytes: Vec<u8> = get(row, index)?;
    TaskId::from_bytes(&bytes).ok_or_else(|| corrupt("task_id", format!("{bytes:?} names no task")))
}

/// The `kind` column of a task.
pub(super) fn kind_number(kind: TaskKind) -> i64 {
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

pub(super) fn task_kind(row: &Row<'_>, index: usize) -> Result<TaskKind, StoreError> {
    match get::<i64>(row, index)? {
        0 => Ok(TaskKind::Workflow),
        1 => Ok(TaskKind::Activity),
        other => Err(corrupt("kind", format!("{other} is no kind of task"))),
    }
}
