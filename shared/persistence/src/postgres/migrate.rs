//! Makes and updates the schema, the shards and the slot map.

use super::error::store_error;
use super::options::parse_url;
use super::sessions::connect;
use crate::error::StoreError;
use crate::slots::even_ranges;
use harvest_ids::SLOT_COUNT;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor, Row};
use std::time::Duration;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// Whoever holds this advisory lock migrates; the number is "harvest" in ASCII.
const LOCK: &str = "SELECT pg_advisory_lock(x'68617276657374'::bigint)";

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    /// Descriptions of the migrations that were applied now, oldest first; empty when the schema was up to date.
    pub applied: Vec<String>,
    /// How many shards were created now.
    pub shards_created: u32,
    /// How many shards the fleet has.
    pub shards: u32,
}

/// Why a migration did not happen.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The number of shards is none.
    #[error("a fleet has 1 to {SLOT_COUNT} shards, not {0}")]
    Shards(u32),
    /// The number of shards of an existing fleet cannot change.
    #[error("the fleet has {existing} shards and cannot be changed to {asked}: run with --shards {existing}")]
    ShardCount {
        /// What the database has.
        existing: u32,
        /// What was asked for.
        asked: u32,
    },
    /// A migration failed, or the database has one that this version does not know.
    #[error("migration failed: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The database failed or cannot be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Brings a database up to date: idempotent, and safe when several run at once (the others wait and then find nothing to do).
///
/// # Errors
/// [`MigrateError`]; when it is `ShardCount` the schema is up to date and the shards are as they were.
pub async fn migrate(url: &str, shards: u32) -> Result<MigrationReport, MigrateError> {
    if shards == 0 || shards > u32::from(SLOT_COUNT) {
        return Err(MigrateError::Shards(shards));
    }
    let options = parse_url(url)?.options([("search_path", "harvest")]).application_name("harvest:migrate");
    let mut connection = connect(&options, Duration::from_secs(10)).await.map_err(|error| store_error(&error))?;
    connection.execute(LOCK).await.map_err(|error| store_error(&error))?;
    let report = migrate_locked(&mut connection, shards).await;
    // Closing the session gives the lock back whatever happened.
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "the connection of the migration did not close in order");
    }
    report
}

async fn migrate_locked(connection: &mut PgConnection, shards: u32) -> Result<MigrationReport, MigrateError> {
    connection.execute("CREATE SCHEMA IF NOT EXISTS harvest").await.map_err(|error| store_error(&error))?;
    let before = applied(connection).await?;
    MIGRATIONS.run(&mut *connection).await?;
    let applied = applied(connection).await?.into_iter().skip(before.len()).collect();
    let existing = shard_count(connection).await?;
    if existing != 0 && existing != shards {
        return Err(MigrateError::ShardCount { existing, asked: shards });
    }
    if existing == 0 {
        create_shards(connection, shards).await.map_err(|error| store_error(&error))?;
    }
    Ok(MigrationReport { applied, shards_created: shards - existing, shards })
}

/// Descriptions of what has been applied, oldest first.
async fn applied(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    let known = connection.fetch_one("SELECT to_regclass('harvest._sqlx_migrations') IS NOT NULL").await.map_err(|error| store_error(&error))?;
    if !known.try_get::<bool, _>(0).map_err(|error| store_error(&error))? {
        return Ok(Vec::new());
    }
    let rows = connection.fetch_all("SELECT description FROM harvest._sqlx_migrations ORDER BY version").await.map_err(|error| store_error(&error))?;
    rows.iter().map(|row| row.try_get(0).map_err(|error| store_error(&error))).collect()
}

async fn shard_count(connection: &mut PgConnection) -> Result<u32, StoreError> {
    let row = connection.fetch_one(include_str!("shard/count.sql")).await.map_err(|error| store_error(&error))?;
    let count: i64 = row.try_get(0).map_err(|error| store_error(&error))?;
    u32::try_from(count).map_err(|_| StoreError::Corrupt(format!("{count} shards")))
}

/// All or nothing: a fleet has all its shards, or none.
async fn create_shards(connection: &mut PgConnection, shards: u32) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let ranges = even_ranges(shards);
    for range in &ranges {
        sqlx::query(include_str!("shard/create.sql")).bind(range.shard).execute(&mut *transaction).await?;
    }
    sqlx::query(include_str!("slot/insert.sql"))
        .bind(ranges.iter().map(|range| range.first).collect::<Vec<_>>())
        .bind(ranges.iter().map(|range| range.last).collect::<Vec<_>>())
        .bind(ranges.iter().map(|range| range.shard).collect::<Vec<_>>())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}
