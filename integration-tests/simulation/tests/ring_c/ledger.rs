//! The histories of clients and of the world outside, to be held against the records.

use std::collections::{BTreeMap, BTreeSet};

/// The answer to a start.
#[derive(Debug, Clone)]
pub struct Started {
    /// The business key.
    pub workflow_id: String,
    pub execution_id: String,
    /// It made the run.
    pub fresh: bool,
}

/// How a client was told that a run has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    Completed(serde_json::Value),
    Failed(String),
    Cancelled,
    Terminated,
    TimedOut,
}

/// What the world outside has seen of one activity.
#[derive(Debug, Default)]
pub struct Effect {
    /// The attempts that began, in order.
    pub begun: Vec<u32>,
    pub max_attempts: u32,
}

/// The books.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Acknowledged starts by request id.
    pub starts: BTreeMap<String, Started>,
    /// Acknowledged signals by their text, with the run that they were sent to.
    pub signals: BTreeMap<String, String>,
    /// Signals of which the sender was told that the run is closed.
    pub refused_signals: BTreeSet<String>,
    /// The furthest event of each run that a client was shown.
    pub seen: BTreeMap<String, u64>,
    /// Endings that clients were told, by the run that they asked for.
    pub endings: BTreeMap<String, Ending>,
    /// Queries answered.
    pub answers: u64,
    /// Effects by idempotency key.
    pub effects: BTreeMap<String, Effect>,
    /// Outputs that some attempt has made.
    pub produced: BTreeSet<String>,
    /// What must never happen and did.
    pub violations: Vec<String>,
}

impl Ledger {
    /// A client was shown how far a run has come: it never goes back.
    pub fn saw(&mut self, execution_id: &str, last_event: u64, asked_after: u64) {
        if last_event < asked_after {
            self.violations.push(format!("run {execution_id} was shown at event {asked_after} and later at {last_event}"));
        }
        let seen = self.seen.entry(execution_id.to_owned()).or_default();
        *seen = last_event.max(*seen);
    }

    pub fn seen(&self, execution_id: &str) -> u64 {
        self.seen.get(execution_id).copied().unwrap_or_default()
    }
}
