//! The Postgres store: a leaf of every run table per shard, one fenced statement per commit.
//!
//! - [`migrate()`] makes the schema, the shards and the slot map; [`PgStore::connect`] opens a store on it.
//! - A shard's **writer** ([`crate::store::ShardWriter`]) is a connection of its own with `search_path=shard_N,harvest`, used for nothing
//!   but [`COMMIT`]. Its `application_name` holds shard and epoch, so that a takeover can end the session of a frozen owner.
//! - Everything else goes through a bounded set of **sessions**. Reads of one shard name its leaves directly: through the partitioned
//!   parent each would cost a lock on every partition.
//! - Statements live one a file under `<table>/<verb>.sql`. In those of one shard `shard_0.` stands for the shard's own schema.

mod arguments;
mod config;
mod directory;
mod error;
mod migrate;
mod options;
mod rows;
mod sessions;
mod shard;
mod takeover;
mod writer;

pub use migrate::{MigrateError, MigrationReport, migrate};
pub use options::{PgOptions, session_options, writer_options};
pub use writer::COMMIT;

use crate::error::StoreError;
use harvest_ids::ShardId;
use sessions::Sessions;
use sqlx::postgres::PgConnectOptions;

/// The store on one Postgres server. Cheap to clone.
#[derive(Clone)]
pub struct PgStore {
    connect: PgConnectOptions,
    options: PgOptions,
    sessions: Sessions,
}

impl PgStore {
    /// Connects and checks that the schema is there. `url` is `postgres://user:password@host:port/database?sslmode=..`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the URL is malformed or the database has no Harvest schema, [`StoreError::Unavailable`] when it cannot be
    /// reached.
    pub async fn connect(url: &str, options: PgOptions) -> Result<Self, StoreError> {
        let connect = options::parse_url(url)?;
        let sessions = Sessions::new(session_options(connect.clone(), &options), &options);
        let store = Self { connect, options, sessions };
        let mut session = store.sessions.take().await?;
        session.fetch_one(sqlx::query(include_str!("shard/count.sql"))).await.map_err(|error| match error {
            StoreError::Refused(why) => StoreError::Refused(format!("the database has no Harvest schema, run `harvest migrate` ({why})")),
            other => other,
        })?;
        drop(session);
        Ok(store)
    }
}

/// The text of a statement on one shard's leaves: `shard_0.` in the file stands for the shard's schema.
fn leaf_sql(text: &'static str, shard_id: ShardId) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(text.replace("shard_0.", &format!("shard_{shard_id}.")))
}

/// `u64` to Postgres' `bigint`; `None` beyond 2^63 - 1.
fn bigint(value: u64) -> Option<i64> {
    i64::try_from(value).ok()
}

/// A shard's number as Postgres' `integer`.
fn integer(shard_id: ShardId) -> Result<i32, StoreError> {
    i32::try_from(shard_id.0).map_err(|_| StoreError::Refused(format!("shard {shard_id} is beyond the largest shard number {}", i32::MAX)))
}
