//! The one writer of an owned shard: a connection of its own and one statement.

use super::arguments::bind;
use super::error::{commit_error, session_survives};
use crate::batch::{Batch, BatchId};
use crate::error::CommitError;
use crate::store::ShardWriter;
use async_trait::async_trait;
use sqlx::postgres::PgConnection;
use sqlx::{Executor, Row};
use std::time::Duration;
use tokio::time::timeout;

/// The batch statement. The same text for every shard.
pub const COMMIT: &str = include_str!("batch/commit.sql");

/// See [`crate::store::ShardWriter`].
pub(super) struct PgWriter {
    /// Away while a statement is in flight, and for good once its outcome is not known.
    connection: Option<PgConnection>,
    answer_timeout: Duration,
}

impl PgWriter {
    /// Prepares the statement, so that a commit is one round trip and its errors are those of its execution.
    pub(super) async fn new(mut connection: PgConnection, answer_timeout: Duration) -> Result<Self, sqlx::Error> {
        use sqlx::SqlSafeStr;
        connection.prepare(COMMIT.into_sql_str()).await?;
        Ok(Self { connection: Some(connection), answer_timeout })
    }
}

#[async_trait]
impl ShardWriter for PgWriter {
    async fn commit(&mut self, id: BatchId, batch: &Batch) -> Result<(), CommitError> {
        let query = bind(id, batch)?;
        let mut connection =
            self.connection.take().ok_or_else(|| CommitError::Unknown("this writer lost its connection, or an earlier commit was given up midway".into()))?;
        let answer = match timeout(self.answer_timeout, connection.fetch_one(query)).await {
            Ok(answer) => answer,
            Err(_) => return Err(CommitError::Unknown(format!("no answer from Postgres within {:?}", self.answer_timeout))),
        };
        match answer {
            Ok(row) => {
                self.connection = Some(connection);
                match row.try_get::<i32, _>(0) {
                    Ok(1) => Ok(()),
                    Ok(0) => Err(CommitError::ShardLost),
                    Ok(other) => Err(CommitError::Unknown(format!("the batch statement answered {other}"))),
                    Err(error) => Err(CommitError::Unknown(error.to_string())),
                }
            }
            Err(error) => {
                let outcome = commit_error(&error);
                if session_survives(&error) && !matches!(outcome, CommitError::Unknown(_)) {
                    self.connection = Some(connection);
                }
                Err(outcome)
            }
        }
    }
}
