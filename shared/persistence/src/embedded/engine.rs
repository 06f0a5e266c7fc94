//! Who runs statements: the writer thread of a file, or the caller itself in memory.

use super::error::{Lost, store_error};
use crate::error::StoreError;
use rusqlite::Connection;
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// Jobs that may wait for the writer thread; more wait in their callers.
const QUEUE: usize = 1024;

/// The most jobs of one transaction: all of them wait for its end.
const GROUP: usize = 256;

/// What answers a job's caller once it is known whether the transaction was committed.
type Answer = Box<dyn FnOnce(Result<(), String>) + Send>;

/// One unit of writing: all or nothing. Gets the connection inside a transaction, or why there is none.
type Job = Box<dyn FnOnce(Result<&Connection, String>) -> Answer + Send>;

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
        E: Lost + Send + 'static,
    {
        let Some(thread) = &self.writer else { return inline(&self.connection(), write) };
        let Some(jobs) = &thread.jobs else { return Err(E::lost("the store is closed".into())) };
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let result = connection.map_err(E::lost).and_then(|connection| in_savepoint(connection, write));
            Box::new(move |committed| {
                let result = match committed {
                    Ok(()) => result,
                    Err(why) => result.and_then(|_| Err(E::lost(why))),
                };
                // The caller may have given up; the write happened all the same.
                drop(reply.send(result));
            })
        });
        jobs.send(job).await.map_err(|_| E::lost("the store's writer has ended".into()))?;
        answer.await.unwrap_or_else(|_| Err(E::lost("the store's writer has ended".into())))
    }
}

fn inline<T, E: Lost>(connection: &Connection, write: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
    let lost = |error: rusqlite::Error| E::lost(error.to_string());
    let transaction = connection.unchecked_transaction().map_err(lost)?;
    let result = write(&transaction)?;
    transaction.commit().map_err(lost)?;
    Ok(result)
}

fn in_savepoint<T, E: Lost>(connection: &Connection, write: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
    let lost = |error: rusqlite::Error| E::lost(error.to_string());
    connection.execute_batch("SAVEPOINT job").map_err(lost)?;
    match write(connection) {
        Ok(value) => {
            connection.execute_batch("RELEASE job").map_err(lost)?;
            Ok(value)
        }
        Err(error) => {
            connection.execute_batch("ROLLBACK TO job; RELEASE job").map_err(lost)?;
            Err(error)
        }
    }
}

/// The writer thread: whatever waits goes into one transaction.
fn serve(connection: &Connection, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
            let why = error.to_string();
            first(Err(why.clone()))(Err(why));
            continue;
        }
        let mut answers = vec![first(Ok(connection))];
        // A full disk ends the whole transaction: then there is nothing to join any more.
        while answers.len() < GROUP && !connection.is_autocommit() {
            let Ok(job) = jobs.try_recv() else { break };
            answers.push(job(Ok(connection)));
        }
        let committed = commit(connection);
        for answer in answers {
            answer(committed.clone());
        }
    }
}

fn commit(connection: &Connection) -> Result<(), String> {
    if connection.is_autocommit() {
        return Err("SQLite rolled the transaction back".into());
    }
    connection.execute_batch("COMMIT").map_err(|error| {
        if !connection.is_autocommit()
            && let Err(rollback) = connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%rollback, "the embedded store could not roll back");
        }
        error.to_string()
    })
}
