//! Replays histories against code, without a server: for tests that a change of code fits the runs that are under way.

use crate::definition::WorkflowRegistration;
use crate::registry::Registry;
use crate::worker::BuildError;
use crate::workflow::run::{Run, RunError};
use harvest_proto::v1;
use harvest_workflow_core::event::Event;
use std::sync::Arc;

/// Why a history does not fit the code.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayFailure {
    /// The code does something else than is recorded.
    #[error("non-determinism at event {event_id}: the history has {expected}, the code did {actual}")]
    NonDeterministic {
        /// Where.
        event_id: u64,
        /// What the history has.
        expected: String,
        /// What the code did.
        actual: String,
    },
    /// The code panicked.
    #[error("the workflow code panicked: {0}")]
    Panicked(String),
    /// The history cannot be replayed: another type, or not a history.
    #[error("{0}")]
    NotReplayable(String),
    /// The registrations do not go together.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Replays histories against registered workflows.
#[derive(Default)]
pub struct WorkflowReplayer {
    workflows: Vec<WorkflowRegistration>,
}

impl WorkflowReplayer {
    /// Nothing registered.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds workflows: `.workflows(workflows![order])`.
    #[must_use]
    pub fn workflows(mut self, workflows: impl IntoIterator<Item = WorkflowRegistration>) -> Self {
        self.workflows.extend(workflows);
        self
    }

    /// Replays one history, as [`WorkflowHandle::history`](crate::WorkflowHandle::history) returns it.
    ///
    /// # Errors
    /// [`ReplayFailure`].
    pub fn replay(&self, events: Vec<v1::Event>) -> Result<(), ReplayFailure> {
        let events = harvest_wire::event::list(events).map_err(|error| ReplayFailure::NotReplayable(error.to_string()))?;
        self.replay_events(events)
    }

    /// Replays one history that was saved as JSON: what `harvest workflow history .. -o json` prints.
    ///
    /// # Errors
    /// [`ReplayFailure`].
    pub fn replay_json(&self, history: &str) -> Result<(), ReplayFailure> {
        let events = harvest_wire::json::decode_history(history).map_err(|error| ReplayFailure::NotReplayable(error.to_string()))?;
        self.replay_events(events)
    }

    pub(crate) fn replay_events(&self, events: Vec<Event>) -> Result<(), ReplayFailure> {
        let workflows = crate::worker::register_workflows(self.workflows.clone())?;
        let mut run = Run::new(Arc::new(Registry { workflows, ..Registry::default() }));
        run.feed(events).and_then(|()| run.replay()).map_err(|error| match error {
            RunError::Mismatch(it) => ReplayFailure::NonDeterministic { event_id: it.event_id.0, expected: it.expected, actual: it.actual },
            RunError::Panicked(message) => ReplayFailure::Panicked(message),
            RunError::Worker(message) | RunError::OutOfStep(message) => ReplayFailure::NotReplayable(message),
        })
    }
}
