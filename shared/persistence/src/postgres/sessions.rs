//! A bounded set of sessions.
//!
//! Smaller than sqlx's pool on purpose: that one sends a round trip of its own whenever a connection comes back. Here a session comes back
//! only when its last statement was answered; one that was given up midway, or lost, is closed, and its place is free at once.

use super::error::{session_survives, store_error};
use super::options::PgOptions;
use crate::error::StoreError;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow};
use sqlx::{Connection, Executor, Postgres};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A statement with its arguments.
pub(super) type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

/// Opens sessions and keeps the idle ones. Cheap to clone.
#[derive(Clone)]
pub(super) struct Sessions(Arc<Inner>);

struct Inner {
    connect: PgConnectOptions,
    idle: Mutex<Vec<PgConnection>>,
    places: Arc<Semaphore>,
    acquire_timeout: Duration,
    connect_timeout: Duration,
    answer_timeout: Duration,
}

impl Inner {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PgConnection>> {
        // A list of connections is in order whatever its last user did.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    pub(super) fn new(connect: PgConnectOptions, options: &PgOptions) -> Self {
        Self(Arc::new(Inner {
            connect,
            idle: Mutex::new(Vec::new()),
            places: Arc::new(Semaphore::new(options.max_sessions.max(1))),
            acquire_timeout: options.acquire_timeout,
            connect_timeout: options.connect_timeout,
            answer_timeout: options.answer_timeout(),
        }))
    }

    /// An idle session, or a new one.
    pub(super) async fn take(&self) -> Result<Session, StoreError> {
        let place = timeout(self.0.acquire_timeout, Arc::clone(&self.0.places).acquire_owned())
            .await
            .map_err(|_| StoreError::Unavailable(format!("all database sessions (max_sessions) were busy for {:?}", self.0.acquire_timeout)))?
            .map_err(|_| StoreError::Unavailable("the store is closed".into()))?;
        let idle = self.0.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(&self.0.connect, self.0.connect_timeout).await.map_err(|error| store_error(&error))?,
        };
        Ok(Session { connection: Some(connection), owner: Arc::clone(&self.0), _place: place })
    }
}

/// Opens a connection within a bound.
pub(super) async fn connect(options: &PgConnectOptions, bound: Duration) -> Result<PgConnection, sqlx::Error> {
    match timeout(bound, PgConnection::connect_with(options)).await {
        Ok(connected) => connected,
        Err(_) => Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no connection to Postgres within {bound:?}")))),
    }
}

/// One session in use; idle again when dropped, if its last statement was answered.
pub(super) struct Session {
    connection: Option<PgConnection>,
    owner: Arc<Inner>,
    _place: OwnedSemaphorePermit,
}

impl Session {
    pub(super) async fn fetch_all(&mut self, query: Query<'_>) -> Result<Vec<PgRow>, StoreError> {
        self.try_fetch_all(query).await.map_err(|error| store_error(&error))
    }

    pub(super) async fn fetch_optional(&mut self, query: Query<'_>) -> Result<Option<PgRow>, StoreError> {
        Ok(self.fetch_all(query).await?.into_iter().next())
    }

    pub(super) async fn fetch_one(&mut self, query: Query<'_>) -> Result<PgRow, StoreError> {
        self.fetch_optional(query).await?.ok_or_else(|| StoreError::Corrupt("a row that every fleet has is missing".into()))
    }

    /// How many rows were written.
    pub(super) async fn execute(&mut self, query: Query<'_>) -> Result<u64, StoreError> {
        let result = self.answered(async |connection| connection.execute(query).await).await;
        result.map(|done| done.rows_affected()).map_err(|error| store_error(&error))
    }

    pub(super) async fn try_fetch_all(&mut self, query: Query<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        self.answered(async |connection| connection.fetch_all(query).await).await
    }

    /// Runs one statement. The connection is away while it runs, so that a caller that gives up midway does not return it.
    async fn answered<T>(&mut self, statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        let lost = || sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::NotConnected, "the session was lost in an earlier statement"));
        let mut connection = self.connection.take().ok_or_else(lost)?;
        let bound = self.owner.answer_timeout;
        let result = timeout(bound, statement(&mut connection))
            .await
            .unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer from Postgres within {bound:?}")))));
        match &result {
            Ok(_) => self.connection = Some(connection),
            Err(error) if session_survives(error) => self.connection = Some(connection),
            // The others are most likely gone too (a restart, a failover): let nobody else find out one by one.
            Err(_) => self.owner.idle().clear(),
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.owner.idle().push(connection);
        }
    }
}
