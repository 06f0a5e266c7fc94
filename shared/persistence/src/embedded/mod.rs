//! The embedded store: SQLite, in one process. A file for `harvest dev`, memory for simulations and tests.
//!
//! - [`EmbeddedStore::open`] keeps everything in one file. All shards share one writer thread, which puts whatever waits (commits of several
//!   shards included) into one transaction with one `fsync`, each in a savepoint of its own, so that a poisoned batch fails alone. Reads have a
//!   connection of their own and see what is committed only.
//! - [`EmbeddedStore::in_memory`] does everything inline, in the caller's thread and order: a simulation is deterministic on it.
//! - A file belongs to one process at a time: a second one is refused with [`OpenError::InUse`]. That is why opening a file may release the
//!   leases of whoever had it before and forget its members and workers; they are gone.
//! - What is on the database's clock in Postgres is on the process's clock here, or on the one given to [`EmbeddedStore::open_with`].
//!
//! Statements live one a file under `<table>/<verb>.sql`.

mod commit;
mod config;
mod directory;
mod engine;
mod error;
mod rows;
mod shard;

use crate::error::StoreError;
use crate::slots::even_ranges;
use engine::{Engine, Place};
use error::store_error;
use harvest_ids::{SLOT_COUNT, Timestamp};
use rusqlite::Connection;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tells the present instant.
pub type StoreClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Schema changes, oldest first; a file's version is how many it has had.
const SCHEMA: [&str; 3] =
    [include_str!("schema/0001_initial.sql"), include_str!("schema/0002_activity_type.sql"), include_str!("schema/0003_sla_and_pause.sql")];

/// The store in one SQLite file or in memory. Cheap to clone; the file is free again when the last clone and writer are gone.
#[derive(Clone)]
pub struct EmbeddedStore {
    engine: Arc<Engine>,
    clock: StoreClock,
}

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0} is in use by another process (is another `harvest dev` running on it?)")]
    InUse(PathBuf),
    /// A newer version wrote it.
    #[error("the store has schema version {found}, this program knows up to {known}: use a newer one")]
    Newer {
        /// The file's version.
        found: usize,
        /// Ours.
        known: usize,
    },
    /// It is a folder, a device or the like.
    #[error("the store {0} is not a regular file")]
    NotAFile(PathBuf),
    /// The file system refused.
    #[error("the store {path} cannot be opened: {error}")]
    File {
        /// Which store.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file system refused the lock beside the store.
    #[error("the store {path} cannot be locked by {lock}: {error}")]
    Lock {
        /// Which store.
        path: PathBuf,
        /// Its lock.
        lock: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// SQLite refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// SQLite refused a file.
    #[error("the store {path} cannot be opened: {error}")]
    Database {
        /// Which store.
        path: PathBuf,
        /// Why.
        error: StoreError,
    },
}

/// Why the shards could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ShardsError {
    /// The number of shards is none.
    #[error("a fleet has 1 to {SLOT_COUNT} shards, not {0}")]
    Shards(u32),
    /// The number of shards of an existing store cannot change.
    #[error("the store has {existing} shards and cannot be changed to {asked}: use --shards {existing} or another file")]
    ShardCount {
        /// What the store has.
        existing: u32,
        /// What was asked for.
        asked: u32,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn sqlite(error: rusqlite::Error) -> OpenError {
    OpenError::Store(store_error(&error))
}

impl EmbeddedStore {
    /// Opens or makes a store in a file, on the process's clock.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, process_clock())
    }

    /// As [`EmbeddedStore::open`] on a given clock.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open_with(path: impl AsRef<Path>, clock: StoreClock) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let file = regular_file(path)?;
        let lock = lock(path, &file)?;
        let engine = open_locked(&file, lock).map_err(|error| match error {
            OpenError::Store(error) => OpenError::Database { path: path.to_owned(), error },
            other => other,
        })?;
        Ok(Self { engine: Arc::new(engine), clock })
    }

    /// A store in memory, on the process's clock.
    ///
    /// # Errors
    /// [`OpenError::Store`] when SQLite fails.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::in_memory_with(process_clock())
    }

    /// As [`EmbeddedStore::in_memory`] on a given clock.
    ///
    /// # Errors
    /// [`OpenError::Store`] when SQLite fails.
    pub fn in_memory_with(clock: StoreClock) -> Result<Self, OpenError> {
        let connection = Connection::open_in_memory().map_err(sqlite)?;
        prepare(&connection)?;
        Ok(Self { engine: Arc::new(Engine::new(Place::Memory(connection))?), clock })
    }

    /// Makes the shards and the slot map of a new store; does nothing on one that has them. Returns how many were made.
    ///
    /// # Errors
    /// [`ShardsError`]; an existing store keeps its number of shards.
    pub async fn migrate(&self, shards: u32) -> Result<u32, ShardsError> {
        if shards == 0 || shards > u32::from(SLOT_COUNT) {
            return Err(ShardsError::Shards(shards));
        }
        let existing = self.engine.write(move |connection| create_shards(connection, shards)).await?;
        match existing {
            0 => Ok(shards),
            existing if existing == shards => Ok(0),
            existing => Err(ShardsError::ShardCount { existing, asked: shards }),
        }
    }

    fn now(&self) -> i64 {
        (self.clock)().as_millis()
    }

    /// The instant after a span; spans beyond the calendar never end.
    fn after(&self, span_ms: u64) -> i64 {
        self.now().saturating_add(i64::try_from(span_ms).unwrap_or(i64::MAX))
    }
}

#[expect(clippy::disallowed_methods, reason = "stands for the database's clock, which the store owns")]
fn process_clock() -> StoreClock {
    Arc::new(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    })
}

/// The file behind a path, made when there is none, under its one name: two paths to it (symbolic links) must meet at one lock.
fn regular_file(path: &Path) -> Result<PathBuf, OpenError> {
    let fault = |error| OpenError::File { path: path.to_owned(), error };
    match std::fs::metadata(path) {
        // Before it is opened: opening a pipe would wait for its other end.
        Ok(found) if !found.is_file() => return Err(OpenError::NotAFile(path.to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => drop(File::options().create(true).append(true).open(path).map_err(fault)?),
        Err(error) => return Err(fault(error)),
    }
    std::fs::canonicalize(path).map_err(fault)
}

/// One process per file. The lock goes with the process, however that ends.
fn lock(path: &Path, file: &Path) -> Result<File, OpenError> {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    let lock = PathBuf::from(name);
    let fault = |error| OpenError::Lock { path: path.to_owned(), lock: lock.clone(), error };
    let held = File::options().create(true).truncate(false).write(true).open(&lock).map_err(fault)?;
    match held.try_lock() {
        Ok(()) => Ok(held),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => Err(fault(error)),
    }
}

fn open_locked(file: &Path, lock: File) -> Result<Engine, OpenError> {
    let writer = Connection::open(file).map_err(sqlite)?;
    // Acknowledged means durable: every commit waits for the disk.
    writer.pragma_update(None, "journal_mode", "WAL").map_err(sqlite)?;
    writer.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    prepare(&writer)?;
    let reader = Connection::open(file).map_err(sqlite)?;
    settings(&reader)?;
    reader.pragma_update(None, "query_only", true).map_err(sqlite)?;
    Ok(Engine::new(Place::File { writer, reader, lock })?)
}

fn settings(connection: &Connection) -> Result<(), OpenError> {
    connection.set_prepared_statement_cache_capacity(128);
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(sqlite)?;
    connection.pragma_update(None, "cache_size", -65_536).map_err(sqlite)?;
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(sqlite)
}

/// Brings the schema up to date and forgets the processes of the past.
fn prepare(connection: &Connection) -> Result<(), OpenError> {
    settings(connection)?;
    let transaction = connection.unchecked_transaction().map_err(sqlite)?;
    transaction.execute_batch(include_str!("schema/version.sql")).map_err(sqlite)?;
    let found: i64 = transaction.query_row(include_str!("schema/current.sql"), [], |row| row.get(0)).map_err(sqlite)?;
    let found = usize::try_from(found).unwrap_or(usize::MAX);
    if found > SCHEMA.len() {
        return Err(OpenError::Newer { found, known: SCHEMA.len() });
    }
    for (version, change) in (1i64..).zip(SCHEMA).skip(found) {
        transaction.execute_batch(change).map_err(sqlite)?;
        transaction.execute(include_str!("schema/record.sql"), [version]).map_err(sqlite)?;
    }
    transaction.execute_batch(include_str!("schema/forget_processes.sql")).map_err(sqlite)?;
    transaction.commit().map_err(sqlite)
}

/// Returns how many shards there were.
fn create_shards(connection: &Connection, shards: u32) -> Result<u32, StoreError> {
    let fault = |error: rusqlite::Error| store_error(&error);
    let existing: u32 = connection.query_row(include_str!("shard/count.sql"), [], |row| row.get(0)).map_err(fault)?;
    if existing > 0 {
        return Ok(existing);
    }
    for range in even_ranges(shards) {
        connection.execute(include_str!("shard/create.sql"), [range.shard]).map_err(fault)?;
        connection.execute(include_str!("lease/create.sql"), [range.shard]).map_err(fault)?;
        connection.execute(include_str!("slot/insert.sql"), [range.first, range.last, range.shard]).map_err(fault)?;
    }
    Ok(0)
}
