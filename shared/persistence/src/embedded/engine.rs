//! Who runs statements: the writer thread of a file, or the caller itself in memory.

use super::error::{Lost, store_error};
use crate::error::StoreError;
use rusqlite::Connection;
use std::fmt::Display;
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// Jobs that may wait for the writer thread; more wait in their callers.
const QUEUE: usize = 1024;

/// The most jobs of one transaction: all of them wait for its end.
const GROUP: usize = 256;

/// What answers a job's caller once it is known whether the transaction was committed.
type Answer = Box<dyn FnOnce(Result<(), Lost>) + Send>;

/// One unit of writing: all or nothing. Gets the connection inside a transaction, or why there is none. What it could not do comes back in
/// words beside its answer.
type Job = Box<dyn FnOnce(Result<&Connection, Lost>) -> (Answer, Result<(), String>) + Send>;

/// Where a store is.
pub(super) enum Place {
    Memory(Connection),
    File { writer: Connection, reader: Connection, lock: File },
}

/// Runs reads and writes.
pub(super) struct Engine {
    /// The only connection in memory; the reading one of a file.
    connection: Mutex<Connection>,
    /// `None` in memory.
    writer: Option<WriterThread>,
}

struct WriterThread {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for WriterThread {
    /// Waits for what is in the queue, so that the file is free when its store is gone.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread of the embedded store panicked");
        }
    }
}

impl Engine {
    pub(super) fn new(place: Place) -> Result<Self, StoreError> {
        match place {
            Place::Memory(connection) => Ok(Self { connection: Mutex::new(connection), writer: None }),
            Place::File { writer, reader, lock } => {
                let (jobs, queue) = mpsc::channel(QUEUE);
                let thread = std::thread::Builder::new()
                    .name("harvest-store".into())
                    .spawn(move || {
                        serve(&writer, queue);
                        // In this order: whoever gets the lock next finds the file closed.
                        drop(writer);
                        drop(lock);
                    })
                    .map_err(|error| StoreError::Unavailable(format!("no thread for the store's writer: {error}")))?;
                Ok(Self { connection: Mutex::new(reader), writer: Some(WriterThread { jobs: Some(jobs), thread: Some(thread) }) })
            }
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A panic in a reader leaves no transaction open: rusqlite ends it when it unwinds.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads inline, in one snapshot.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let connection = self.connection();
        let snapshot = connection.unchecked_transaction().map_err(|error| store_error(&error))?;
        let result = read(&snapshot)?;
        snapshot.commit().map_err(|error| store_error(&error))?;
        Ok(result)
    }

    /// Writes all or nothing, durably. On an error of `write` nothing of it stays.
    pub(super) async fn write<T, E>(&self, write: impl FnOnce(&Connection) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Lost> + Display + Send + 'static,
    {
        let Some(thread) = &self.writer else { return inline(&self.connection(), write) };
        let Some(jobs) = &thread.jobs else { return Err(Lost::Undone("the store is closed".into()).into()) };
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let result = connection.map_err(E::from).and_then(|connection| in_savepoint(connection, write));
            let failed = result.as_ref().map(drop).map_err(ToString::to_string);
            let answer = move |committed: Result<(), Lost>| {
                // The caller may have given up; the write happened all the same.
                drop(reply.send(result.and_then(|value| committed.map(|()| value).map_err(E::from))));
            };
            (Box::new(answer), failed)
        });
        let ended = "the store's writer has ended";
        jobs.send(job).await.map_err(|_| Lost::Undone(ended.into()))?;
        answer.await.unwrap_or_else(|_| Err(Lost::Unknown(ended.into()).into()))
    }
}

fn undone(error: &rusqlite::Error) -> Lost {
    Lost::Undone(error.to_string())
}

fn inline<T, E: From<Lost>>(connection: &Connection, write: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
    let transaction = connection.unchecked_transaction().map_err(|error| undone(&error))?;
    let result = write(&transaction)?;
    transaction.commit().map_err(|error| Lost::at_commit(&error))?;
    Ok(result)
}

fn in_savepoint<T, E: From<Lost>>(connection: &Connection, write: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
    connection.execute_batch("SAVEPOINT job").map_err(|error| undone(&error))?;
    let result = write(connection);
    // A full or failing disk ends the whole transaction, savepoints included: the error of the statement says so.
    if !connection.is_autocommit() {
        let end = if result.is_ok() { "RELEASE job" } else { "ROLLBACK TO job; RELEASE job" };
        connection.execute_batch(end).map_err(|error| undone(&error))?;
    }
    result
}

/// The writer thread: whatever waits goes into one transaction.
fn serve(connection: &Connection, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
            let (answer, _) = first(Err(undone(&error)));
            answer(Err(undone(&error)));
            continue;
        }
        let mut answers = Vec::new();
        let mut job = first;
        let committed = loop {
            let (answer, done) = job(Ok(connection));
            answers.push(answer);
            if connection.is_autocommit() {
                // Nothing of the jobs before this one stays either.
                break Err(Lost::Undone(done.err().unwrap_or_else(|| "SQLite rolled the transaction back".into())));
            }
            let next = if answers.len() < GROUP { jobs.try_recv().ok() } else { None };
            match next {
                Some(next) => job = next,
                None => break commit(connection),
            }
        };
        for answer in answers {
            answer(committed.clone());
        }
    }
}

fn commit(connection: &Connection) -> Result<(), Lost> {
    connection.execute_batch("COMMIT").map_err(|error| {
        if !connection.is_autocommit()
            && let Err(rollback) = connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%rollback, "the embedded store could not roll back");
        }
        Lost::at_commit(&error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::error::commit_error;
    use crate::error::CommitError;

    fn full_disk(folder: &tempfile::TempDir) -> Engine {
        let path = folder.path().join("harvest.db");
        let writer = Connection::open(&path).unwrap();
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        writer.execute_batch("CREATE TABLE kept (bytes BLOB NOT NULL)").unwrap();
        writer.pragma_update(None, "max_page_count", 16).unwrap();
        let lock = File::create(folder.path().join("lock")).unwrap();
        Engine::new(Place::File { writer, reader: Connection::open(&path).unwrap(), lock }).unwrap()
    }

    fn insert(bytes: i64) -> impl FnOnce(&Connection) -> Result<(), CommitError> + Send + 'static {
        move |connection| connection.execute("INSERT INTO kept VALUES (zeroblob(?1))", [bytes]).map(drop).map_err(|error| commit_error(&error))
    }

    fn count(engine: &Engine) -> i64 {
        engine.read(|connection| connection.query_row("SELECT count(*) FROM kept", [], |row| row.get(0)).map_err(|error| store_error(&error))).unwrap()
    }

    #[tokio::test]
    async fn a_full_disk_is_named_nothing_stays_and_reads_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let engine = full_disk(&folder);
        engine.write(insert(10)).await.unwrap();
        let too_much = engine.write(insert(1_000_000));
        // In the same transaction as the one that finds the disk full, or in one of its own.
        let (too_much, small) = tokio::join!(too_much, engine.write(insert(10)));
        let error = too_much.unwrap_err();
        assert!(matches!(&error, CommitError::Unavailable(why) if why.contains("disk is full")), "{error:?}");
        assert_eq!(count(&engine), if small.is_ok() { 2 } else { 1 });
        engine.write(insert(10)).await.unwrap();
    }

    #[tokio::test]
    async fn whoever_shared_the_transaction_of_a_full_disk_learns_that_nothing_was_written_and_why() {
        let folder = tempfile::tempdir().unwrap();
        let engine = full_disk(&folder);
        // The writer is held in a first transaction until the other two wait behind it, to share the next one.
        let (go, gate) = std::sync::mpsc::sync_channel::<()>(1);
        let held = engine.write(move |connection| {
            gate.recv().expect("the test lets it go");
            insert(10)(connection)
        });
        let queued = async {
            let both = async { tokio::join!(engine.write(insert(10)), engine.write(insert(1_000_000))) };
            tokio::pin!(both);
            assert!(futures::poll!(both.as_mut()).is_pending());
            go.send(()).unwrap();
            both.await
        };
        let (first, (small, large)) = tokio::join!(held, queued);
        let undone = |outcome: &Result<(), CommitError>| matches!(outcome, Err(CommitError::Unavailable(why)) if why.contains("disk is full"));
        assert!(undone(&small) && undone(&large), "{first:?} {small:?} {large:?}");
        assert_eq!(count(&engine), i64::from(first.is_ok()));
    }
}
