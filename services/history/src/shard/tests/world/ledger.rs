//! What clients and workers were told, to be held against the records.

use harvest_ids::{ActivityId, EventId, ExecutionId};
use harvest_workflow_core::state::Outcome;
use std::collections::{BTreeMap, BTreeSet};

/// The books of all that was promised.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Acknowledged starts.
    pub(super) started: BTreeSet<ExecutionId>,
    /// Request ids of starts, with the run that each was told of.
    pub(super) by_request: BTreeMap<String, ExecutionId>,
    /// Acknowledged signals, by their text, with the run that took each.
    pub(super) signals: BTreeMap<String, ExecutionId>,
    /// Signals of which the sender was told that the run is closed.
    pub(super) refused_signals: BTreeSet<String>,
    /// How many different signals each run has acknowledged.
    taken: BTreeMap<ExecutionId, u64>,
    /// The furthest event of each run that anybody was told of.
    pub(super) seen: BTreeMap<ExecutionId, EventId>,
    /// Outcomes that callers were told.
    pub(super) outcomes: BTreeMap<ExecutionId, Outcome>,
    /// Outputs that some worker has produced.
    pub(super) produced: BTreeSet<String>,
    /// Outputs of which a worker was told that they are recorded.
    pub(super) recorded: BTreeSet<String>,
    /// How often an activity that may run only once was begun.
    pub(super) begun_once: BTreeMap<(ExecutionId, ActivityId), u32>,
    /// Decisions of which a worker was told that they are recorded.
    pub(super) decided: BTreeSet<String>,
    /// What must never happen and did.
    pub(super) violations: Vec<String>,
}

impl Ledger {
    /// Somebody was told how far a run has come: it never goes back.
    pub(super) fn saw(&mut self, run: ExecutionId, last_event: EventId, asked_after: EventId) {
        if last_event < asked_after {
            self.violations.push(format!("run {run} was seen at event {asked_after} and later at {last_event}"));
        }
        let seen = self.seen.entry(run).or_default();
        *seen = last_event.max(*seen);
    }

    /// A run took something: since the last look it has one event more at least.
    pub(super) fn acknowledged_event(&mut self, run: ExecutionId) {
        let taken = self.taken.entry(run).or_default();
        *taken += 1;
        let at_least = EventId(*taken + 1); // the first event is its start
        let seen = self.seen.entry(run).or_default();
        *seen = at_least.max(*seen);
    }

    pub(super) fn seen(&self, run: ExecutionId) -> EventId {
        self.seen.get(&run).copied().unwrap_or_default()
    }
}
