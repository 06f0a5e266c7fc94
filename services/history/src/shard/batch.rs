//! The open batch, and the one in flight.

use super::Envelope;
use super::operation::{Answer, Refusal, Responder};
use super::run::Sealed;
use harvest_ids::ExecutionId;
use harvest_persistence::batch::{Batch, BatchId, OutboxRow};
use std::collections::BTreeSet;

/// Most decisions in one batch.
pub(crate) const MAX_DECISIONS: usize = 256;
/// Most bytes of records and messages in one batch, roughly.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;

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
    /// Bytes of payloads, roughly.
    pub(crate) bytes: usize,
}

impl OpenBatch {
    /// Whether it must be sent before anything more is decided.
    pub(crate) fn is_full(&self) -> bool {
        self.riding.len() >= MAX_DECISIONS || self.touched.len() >= MAX_DECISIONS || self.bytes >= MAX_BYTES
    }

    /// Whether there is anything to write.
    pub(crate) fn has_writes(&self) -> bool {
        !self.touched.is_empty() || !self.outbox.is_empty() || !self.delivered.is_empty()
    }
}

/// A sealed batch with the store.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) id: BatchId,
    pub(crate) batch: Batch,
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) riding: Vec<Riding>,
}
