//! The batch, statement by statement inside one transaction. The fence comes first: no fence row, no write.

use super::error::commit_error;
use super::rows::{Number, blob, kind_number, kind_of, optional_blob};
use crate::batch::{Batch, BatchId, RunMutable, RunRow};
use crate::error::CommitError;
use harvest_ids::Timestamp;
use rusqlite::{Connection, Params, params};

/// Writes a batch. An error leaves the transaction to be rolled back.
pub(super) fn commit(connection: &Connection, id: BatchId, batch: &Batch) -> Result<(), CommitError> {
    let shard = id.shard_id.0;
    let write = Writer { connection };
    if write.count(include_str!("shard/fence.sql"), params![shard, Number(id.epoch.0), Number(id.batch_seq)])? == 0 {
        return Err(CommitError::ShardLost);
    }
    // Changes and deletes before inserts: a continue-as-new must not meet its predecessor in the unique index.
    runs_changed(&write, shard, batch)?;
    for row in &batch.runs_new {
        run_new(&write, shard, row)?;
    }
    for row in &batch.history {
        let values =
            params![blob(row.execution_id), Number(row.first_record), shard, row.record_count, Number(row.first_event.0), row.event_count, &row.records[..]];
        write.one(include_str!("history/insert.sql"), values)?;
    }
    for task in &batch.tasks_gone {
        write.one(include_str!("task/delete.sql"), params![task.to_bytes(), shard])?;
    }
    for row in &batch.tasks_new {
        let kind = kind_number(kind_of(row.task.key));
        let values = params![row.task.to_bytes(), shard, row.sequence, kind, row.namespace.as_str(), row.queue.as_str()];
        write.one(include_str!("task/insert.sql"), values)?;
    }
    for run in &batch.due_gone {
        write.one(include_str!("due/delete.sql"), params![blob(*run), shard])?;
    }
    for (sql, rows) in [(include_str!("due/update.sql"), &batch.due_changed), (include_str!("due/insert.sql"), &batch.due_new)] {
        for row in rows {
            write.one(sql, params![blob(row.execution_id), shard, row.due_at.as_millis()])?;
        }
    }
    for sequence in &batch.outbox_gone {
        write.one(include_str!("outbox/delete.sql"), params![shard, sequence])?;
    }
    for row in &batch.outbox_new {
        write.one(include_str!("outbox/insert.sql"), params![shard, row.sequence, blob(row.target), &row.message[..]])?;
    }
    Ok(())
}

struct Writer<'c> {
    connection: &'c Connection,
}

impl Writer<'_> {
    fn count(&self, sql: &str, values: impl Params) -> Result<usize, CommitError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| commit_error(&error))?;
        statement.execute(values).map_err(|error| commit_error(&error))
    }

    /// Every statement of a batch writes exactly one row.
    fn one(&self, sql: &str, values: impl Params) -> Result<(), CommitError> {
        match self.count(sql, values)? {
            1 => Ok(()),
            _ => Err(CommitError::Poisoned(format!("a row that the batch changes is not there: {}", sql.trim()))),
        }
    }
}

fn millis(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_millis)
}

fn reason(row: &RunMutable) -> Option<&[u8]> {
    row.blocked_reason.as_ref().map(String::as_bytes)
}

fn runs_changed(write: &Writer<'_>, shard: u32, batch: &Batch) -> Result<(), CommitError> {
    for row in &batch.runs_changed {
        let new = &row.mutable;
        let values = params![
            blob(row.execution_id),
            shard,
            new.status.as_str(),
            millis(new.closed_at),
            Number(new.last_event.0),
            optional_blob(new.continued_as),
            millis(new.blocked_at),
            reason(new),
            millis(new.paused_at),
            millis(new.sla_deadline_at),
            millis(new.sla_breached_at)
        ];
        write.one(include_str!("run/update.sql"), values)?;
    }
    Ok(())
}

fn run_new(write: &Writer<'_>, shard: u32, row: &RunRow) -> Result<(), CommitError> {
    let new = &row.mutable;
    let values = params![
        blob(row.execution_id),
        shard,
        row.namespace.as_str(),
        row.workflow_type.as_str(),
        row.workflow_id.as_str(),
        blob(row.first_execution_id),
        optional_blob(row.parent_execution_id),
        row.task_queue.as_str(),
        row.started_at.as_millis(),
        row.execution_timeout_ms.map(Number),
        new.status.as_str(),
        millis(new.closed_at),
        Number(new.last_event.0),
        optional_blob(new.continued_as),
        millis(new.blocked_at),
        reason(new),
        millis(new.paused_at),
        millis(new.sla_deadline_at),
        millis(new.sla_breached_at),
        row.sla_ms.map(Number)
    ];
    write.one(include_str!("run/insert.sql"), values)
}
