//! What the tables of a benchmark hold: how many tasks wait and in which order, how the backlog is read, and how many closed runs there are.

use super::MeasureError;
use crate::batch::TaskId;
use crate::postgres::{PgOptions, session_options};
use harvest_ids::ShardId;
use harvest_workflow_core::projection::TaskKey;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use std::str::FromStr;
use uuid::Uuid;

/// Copies that one statement makes.
const COPIES_AT_ONCE: u64 = 20_000;

/// An activity task that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingActivity {
    /// The shard of its run.
    pub shard_id: ShardId,
    /// Its run.
    pub execution_id: Uuid,
    /// Its number in the run.
    pub activity_id: u64,
}

/// Reads the tables of one database; no bound on how long that takes.
pub struct Tables {
    connection: PgConnection,
    url: String,
}

impl Tables {
    /// Connects to a database with the tables of a fleet.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn connect(url: &str) -> Result<Self, MeasureError> {
        let connection = PgConnection::connect_with(&PgConnectOptions::from_str(url)?.application_name("harvest:measure")).await?;
        Ok(Self { connection, url: url.to_owned() })
    }

    /// How many tasks of a queue of the namespace `default` have not ended, those with workers included.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn pending_tasks(&mut self, queue: &str) -> Result<u64, MeasureError> {
        let count: i64 = sqlx::query_scalar(include_str!("pending.sql")).bind(queue).fetch_one(&mut self.connection).await?;
        u64::try_from(count).map_err(decode)
    }

    /// The oldest activity tasks of a queue, so many of each shard, shard by shard in the order in which they are to be handed out.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn oldest_activities(&mut self, queue: &str, of_each_shard: u32) -> Result<Vec<WaitingActivity>, MeasureError> {
        let rows = sqlx::query(include_str!("oldest.sql")).bind(queue).bind(i64::from(of_each_shard)).fetch_all(&mut self.connection).await?;
        rows.iter()
            .map(|row| {
                let (shard, bytes): (i32, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
                let task = TaskId::from_bytes(&bytes).ok_or_else(|| decode("a task id that names no task"))?;
                let TaskKey::Activity(activity_id) = task.key else { return Err(decode("a workflow task among activity tasks")) };
                let shard_id = ShardId(u32::try_from(shard).map_err(decode)?);
                Ok(WaitingActivity { shard_id, execution_id: task.execution_id.as_uuid(), activity_id: activity_id.0 })
            })
            .collect()
    }

    /// How a history process reads the backlog of a queue's activity tasks in one shard: the plan of its statement, run once, from the oldest task on.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn explain_backlog(&mut self, shard_id: ShardId, queue: &str, limit: u32) -> Result<Vec<String>, MeasureError> {
        // The plan depends on the settings of the session.
        let options = session_options(PgConnectOptions::from_str(&self.url)?, &PgOptions::default());
        let mut session = PgConnection::connect_with(&options).await?;
        let statement = include_str!("../postgres/task/backlog.sql").replace("shard_0.", &format!("shard_{shard_id}."));
        session.execute(AssertSqlSafe(format!("PREPARE backlog (text, text, smallint, bigint, bigint) AS {statement}"))).await?;
        let queue = queue.replace('\'', "''");
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) EXECUTE backlog ('default', '{queue}', 1::smallint, 0, {limit})");
        let rows = session.fetch_all(AssertSqlSafe(explain)).await?;
        session.close().await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Fills the tables with copies of completed runs of one type, `count` in all, evenly over these shards. Numbers of copies begin
    /// after `from`: a second call makes others. Returns how many were made. A shard without such a run gets none.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn copy_closed_runs(&mut self, shards: &[ShardId], workflow_type: &str, from: u64, count: u64) -> Result<u64, MeasureError> {
        let shares = u64::try_from(shards.len()).unwrap_or(u64::MAX).max(1);
        let mut made = 0;
        for (place, shard_id) in (0..shares).zip(shards) {
            let mut first = from + count * place / shares + 1;
            let last = from + count * (place + 1) / shares;
            while first <= last {
                let until = last.min(first + COPIES_AT_ONCE - 1);
                let statement = include_str!("copy_closed_runs.sql").replace("shard_0.", &format!("shard_{shard_id}."));
                let range = (i64::try_from(first).map_err(decode)?, i64::try_from(until).map_err(decode)?);
                let query = sqlx::query_scalar(AssertSqlSafe(statement)).bind(range.0).bind(range.1).bind(workflow_type);
                let copies: i64 = query.fetch_one(&mut self.connection).await?;
                made += u64::try_from(copies).map_err(decode)?;
                first = until + 1;
            }
        }
        Ok(made)
    }

    /// Vacuums and analyses the tables of runs, so that no background does it during a measurement.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn vacuum(&mut self) -> Result<(), MeasureError> {
        self.connection.execute("VACUUM (ANALYZE) harvest.run, harvest.history, harvest.task, harvest.due").await?;
        Ok(())
    }
}

fn decode(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> MeasureError {
    MeasureError::Database(sqlx::Error::Decode(why.into()))
}
