//! What the engine keeps indexed about a run: derived from its state, never decided by itself.
//!
//! The engine takes the projection before and after its decisions and writes the difference, so that tasks and deadlines cannot
//! drift from the records they follow from.

use crate::record::Dispatch;
use crate::state::Status;
use harvest_ids::{ActivityId, Attempt, EventId, TaskQueue, Timestamp};
use std::collections::BTreeMap;

/// The indexed view of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// Whether and how it ended.
    pub status: Status,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// Its newest event.
    pub last_event: EventId,
    /// All its records, numbered or not.
    pub record_count: u64,
    /// Bytes of its events, by the measure of the limits.
    pub history_bytes: u64,
    /// Its earliest deadline of any kind; none when closed or when nothing can fall due.
    pub due_at: Option<Timestamp>,
    /// Tasks that are ready for a worker or with one. A task that waits for its back-off is not here: it is in `due_at`.
    pub tasks: BTreeMap<TaskKey, Task>,
    /// Why the run is blocked by non-determinism, if it is.
    pub blocked: Option<Block>,
}

/// Which task of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskKey {
    /// Its workflow task.
    Workflow,
    /// The current attempt of an activity.
    Activity(ActivityId),
}

/// One ready or running task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Where it waits.
    pub queue: TaskQueue,
    /// Which attempt.
    pub attempt: Attempt,
    /// When it became ready.
    pub ready_at: Timestamp,
    /// The dispatch that is running it; none when it waits for a worker.
    pub started: Option<Dispatch>,
}

/// A run whose code does not match its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// When it was first found.
    pub since: Timestamp,
    /// How often it was tried.
    pub count: u32,
    /// What the history has.
    pub expected: String,
    /// What the code did.
    pub actual: String,
    /// For people.
    pub message: String,
    /// Where in the history.
    pub event_id: EventId,
}
