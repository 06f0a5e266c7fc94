//! What can go wrong while code meets a history.

use harvest_ids::EventId;

/// The code does not do what the history says it did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("non-determinism at event {event_id}: the history has {expected}, the code did {actual} ({message})")]
pub struct Mismatch {
    /// Where in the history.
    pub event_id: EventId,
    /// What the history has.
    pub expected: String,
    /// What the code did.
    pub actual: String,
    /// For people: what is likely wrong.
    pub message: String,
}

/// Why a decision could not be worked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The code has changed in a way that the history does not allow.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The code asked for more in one workflow task than is allowed: most likely a loop that never waits.
    #[error("the code issued more than {allowed} commands in one workflow task")]
    TooManyCommands {
        /// The bound.
        allowed: usize,
    },
    /// The events are not a history that a server writes.
    #[error("malformed history at event {event_id}: {message}")]
    Malformed {
        /// Where.
        event_id: EventId,
        /// What is wrong.
        message: String,
    },
    /// The decision in the history is not the one that this machine submitted: start again from the full history.
    #[error("the decision at event {event_id} was made by another worker")]
    NotOurs {
        /// The decision's `WorkflowTaskCompleted`.
        event_id: EventId,
    },
}

/// Why events were not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// Events are missing between what the machine has and what it was given.
    #[error("events are missing: the next is {expected}, got {found}")]
    Gap {
        /// The event that the machine needs next.
        expected: EventId,
        /// The first one given.
        found: EventId,
    },
    /// The events are not a history that a server writes.
    #[error("malformed history at event {event_id}: {message}")]
    Malformed {
        /// Where.
        event_id: EventId,
        /// What is wrong.
        message: String,
    },
}
