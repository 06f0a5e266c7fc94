//! What a fleet costs its Postgres, as the server counts it: statements, commits, bytes of WAL, instants of commits.
//!
//! For the benchmark and for tests that hold a budget; no service uses it. It needs a superuser, a server that nobody else uses (the WAL is
//! the whole server's) and, from the contributed modules, `pg_walinspect` and, preloaded, `pg_stat_statements`. Start at [`Meter::connect`].

mod tables;

pub use tables::{Tables, WaitingActivity};

use crate::postgres::PgOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use std::collections::BTreeMap;
use std::str::FromStr;
use uuid::Uuid;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A module is missing or not preloaded.
    #[error("the server cannot be measured: {0}; it needs pg_walinspect and shared_preload_libraries = 'pg_stat_statements'")]
    Modules(sqlx::Error),
    /// The server refused or cannot be reached.
    #[error("Postgres refused: {0}")]
    Database(#[from] sqlx::Error),
    /// A name that is not safe in a statement.
    #[error("{0:?} cannot be the name of a database: letters, digits and _ only")]
    Name(String),
}

/// Counts of one moment; two of them make a [`Spent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// The end of the flushed WAL, as Postgres writes it.
    pub position: String,
    /// Calls by statement text, for one database, since the server began to count.
    pub statements: BTreeMap<String, i64>,
}

/// What happened between two moments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spent {
    /// Transactions that wrote.
    pub commits: i64,
    /// Bytes of WAL records, full-page images not among them.
    pub wal_bytes: i64,
    /// Calls by statement text; those of no calls are left out.
    pub statements: BTreeMap<String, i64>,
}

impl Spent {
    /// All calls.
    pub fn statement_calls(&self) -> i64 {
        self.statements.values().sum()
    }

    /// Runs that history processes have read from the store.
    pub fn loaded_runs(&self) -> i64 {
        self.statements.iter().filter(|(text, _)| text.contains("h.records FROM shard_") && text.contains("task_sequences")).map(|(_, calls)| calls).sum()
    }
}

/// When a part of a history was committed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommitTime {
    /// The run.
    pub execution_id: Uuid,
    /// The first of the events that were committed together.
    pub first_event: i64,
    /// How many.
    pub event_count: i64,
    /// Milliseconds since the Unix epoch, by the server's clock.
    pub at_ms: f64,
}

/// Asks one server. Its own statements go to the maintenance database and are not counted among those of the measured one.
pub struct Meter {
    url: String,
    connection: PgConnection,
}

impl Meter {
    /// Connects to the maintenance database of the server and makes the modules available there.
    ///
    /// # Errors
    /// [`MeasureError::Modules`] when a module is not there.
    pub async fn connect(url: &str) -> Result<Self, MeasureError> {
        let mut connection = PgConnection::connect_with(&PgConnectOptions::from_str(url)?.application_name("harvest:measure")).await?;
        for module in ["pg_walinspect", "pg_stat_statements"] {
            connection.execute(AssertSqlSafe(format!("CREATE EXTENSION IF NOT EXISTS {module}"))).await.map_err(MeasureError::Modules)?;
        }
        connection.execute("SELECT FROM pg_stat_statements LIMIT 1").await.map_err(MeasureError::Modules)?;
        Ok(Self { url: url.to_owned(), connection })
    }

    /// Makes an empty database of this name, in place of the one that had it, and returns its URL.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn fresh_database(&mut self, name: &str) -> Result<String, MeasureError> {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
            return Err(MeasureError::Name(name.to_owned()));
        }
        self.connection.execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))).await?;
        self.connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0"))).await?;
        Ok(crate::provision::database_url(&self.url, name))
    }

    /// The process that serves this connection: a child of the server's main process.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn backend_pid(&mut self) -> Result<u32, MeasureError> {
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut self.connection).await?;
        u32::try_from(pid).map_err(|error| MeasureError::Database(sqlx::Error::Decode(error.into())))
    }

    /// The counts of now, of one database's statements.
    ///
    /// # Errors
    /// [`MeasureError`]
    pub async fn read(&mut self, database: &str) -> Result<Counters, MeasureError> {
        let position = sqlx::query_scalar(include_str!("measure/position.sql")).fetch_one(&mut self.connection).await?;
        let rows = sqlx::query(include_str!("measure/statements.sql")).bind(database).fetch_all(&mut self.connection).await?;
        let statements = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_, sqlx::Error>>()?;
        Ok(Counters { position, statements })
    }

    /// What happened between two moments, the whole server's WAL included.
    ///
    /// # Errors
    /// [`MeasureError`], also when the WAL of the time is not kept any more (`wal_keep_size`).
    pub async fn spent(&mut self, from: &Counters, until: &Counters) -> Result<Spent, MeasureError> {
        let row = sqlx::query(include_str!("measure/written.sql")).bind(&from.position).bind(&until.position).fetch_one(&mut self.connection).await?;
        let calls = until.statements.iter().map(|(text, calls)| (text.clone(), calls - from.statements.get(text).copied().unwrap_or(0)));
        Ok(Spent { commits: row.try_get(0)?, wal_bytes: row.try_get(1)?, statements: calls.filter(|(_, calls)| *calls > 0).collect() })
    }
}

/// When the events of these runs were committed. The server must have `track_commit_timestamp = on`; otherwise nothing is found.
///
/// # Errors
/// [`MeasureError`]
pub async fn commit_times(url: &str, runs: &[Uuid]) -> Result<Vec<CommitTime>, MeasureError> {
    let options = crate::postgres::session_options(PgConnectOptions::from_str(url)?, &PgOptions::default());
    let mut connection = PgConnection::connect_with(&options).await?;
    let rows = sqlx::query(include_str!("measure/commit_times.sql")).bind(runs).fetch_all(&mut connection).await?;
    connection.close().await?;
    let read = |row: &sqlx::postgres::PgRow| {
        let event_count: i32 = row.try_get(2)?;
        Ok(CommitTime { execution_id: row.try_get(0)?, first_event: row.try_get(1)?, event_count: event_count.into(), at_ms: row.try_get(3)? })
    };
    Ok(rows.iter().map(read).collect::<Result<_, sqlx::Error>>()?)
}

/// Makes a test server count: `pg_stat_statements` is preloaded from its next start on, and the instants of commits are kept.
///
/// # Errors
/// [`MeasureError`]
pub async fn prepare_server(url: &str) -> Result<(), MeasureError> {
    let mut connection = PgConnection::connect_with(&PgConnectOptions::from_str(url)?).await?;
    for setting in ["shared_preload_libraries = 'pg_stat_statements'", "track_commit_timestamp = on"] {
        connection.execute(AssertSqlSafe(format!("ALTER SYSTEM SET {setting}"))).await?;
    }
    connection.close().await?;
    Ok(())
}
