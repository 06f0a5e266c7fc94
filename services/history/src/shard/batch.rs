//! The open batch, and the one in flight.

use super::Envelope;
use super::operation::{Answer, Refusal, Responder};
use super::run::Sealed;
use harvest_ids::ExecutionId;
use harvest_persistence::batch::{Batch, BatchId, OutboxRow};
use std::collections::BTreeSet;
use std::time::Duration;

/// Most decisions in one batch.
pub(crate) const MAX_DECISIONS: usize = 256;
/// Most bytes of records and messages in one batch, roughly: the decision that reaches it is the last.
pub(crate) const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Most bytes of runs that wait for one batch, roughly; they stay in memory until it has committed. The run that reaches it is the last.
pub(crate) const MAX_RUN_BYTES: u64 = 16 * 1024 * 1024;

/// An operation that is decided, with its answer, waiting for the commit that it rides. It is kept whole so that it can be decided again
/// when a neighbour in its batch is poisoned.
#[derive(Debug)]
pub(crate) struct Riding {
    pub(crate) envelope: Envelope,
    pub(crate) answer: Result<Answer, Refusal>,
}

impl Riding {
    pub(crate) fn release(self) {
        respond(self.envelope.responder, self.answer);
    }
}

/// Answers; a caller that has gone away does not mind.
pub(crate) fn respond(responder: Responder, answer: Result<Answer, Refusal>) {
    if responder.send(answer).is_err() {
        tracing::trace!("the caller did not wait for its answer");
    }
}

/// What the next commit will hold.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    /// Runs with something to seal.
    pub(crate) touched: BTreeSet<ExecutionId>,
    /// Messages of their decisions.
    pub(crate) outbox: Vec<OutboxRow>,
    /// Messages that their targets have committed.
    pub(crate) delivered: Vec<i64>,
    /// Operations whose answers ride along.
    pub(crate) riding: Vec<Riding>,
    /// Bytes of records and messages, roughly.
    pub(crate) bytes: u64,
    /// Bytes of the touched runs, roughly: as they were when they were touched first.
    pub(crate) run_bytes: u64,
}

impl OpenBatch {
    /// Whether it must be sent before anything more is decided.
    pub(crate) fn is_full(&self) -> bool {
        self.riding.len() >= MAX_DECISIONS || self.touched.len() >= MAX_DECISIONS || self.bytes >= MAX_BYTES || self.run_bytes >= MAX_RUN_BYTES
    }

    /// A run of so many bytes has something to seal.
    pub(crate) fn touch(&mut self, id: ExecutionId, run_bytes: u64) {
        if self.touched.insert(id) {
            self.run_bytes += run_bytes;
        }
    }

    /// Whether there is anything to write.
    pub(crate) fn has_writes(&self) -> bool {
        !self.touched.is_empty() || !self.outbox.is_empty() || !self.delivered.is_empty()
    }
}

/// A sealed batch with the store.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// When it was sent, by the monotonic clock.
    pub(crate) sent: Duration,
    pub(crate) id: BatchId,
    pub(crate) batch: Batch,
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) riding: Vec<Riding>,
    /// Answers that show what it holds, to calls that came after it was sent: its fence says nothing about the time since, so they need a later
    /// proof besides.
    pub(crate) late: Vec<Riding>,
}

impl InFlight {
    /// All answers that wait for it, in the order in which they were decided.
    pub(crate) fn take_riding(&mut self) -> Vec<Riding> {
        let mut riding = std::mem::take(&mut self.riding);
        riding.append(&mut self.late);
        riding
    }
}
