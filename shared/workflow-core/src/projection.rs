//! What the engine keeps indexed about a run: derived from its state, never decided by itself.
//!
//! The engine takes the projection before and after its decisions and writes the difference, so that tasks and deadlines cannot
//! drift from the records they follow from.

use crate::event::{Event, EventKind};
use crate::record::{Control, Dispatch, Record};
use crate::state::Status;
use harvest_ids::{ActivityId, Attempt, EventId, TaskQueue, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Since when it is paused, if it is.
    pub paused_at: Option<Timestamp>,
    /// When it counts as late.
    pub sla_deadline: Option<Timestamp>,
    /// When it was found to be late.
    pub sla_breached_at: Option<Timestamp>,
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

/// The tasks that a decision may have changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched {
    /// Tasks to look at again with [`crate::state::State::task`]; all others are as they were.
    pub keys: BTreeSet<TaskKey>,
    /// The run has ended: it has no tasks any more.
    pub closed: bool,
    /// The run was paused or goes on: look at all tasks again.
    pub all: bool,
}

/// Which tasks `records` may have changed, so that a run with thousands of open activities need not be projected whole for each decision.
pub fn touched(records: &[Record]) -> Touched {
    let mut touched = Touched::default();
    for record in records {
        let key = match record {
            Record::Event(event) => event_touches(event, &mut touched.closed),
            Record::Control(Control::Paused { .. } | Control::Resumed { .. }) => {
                touched.all = true;
                None
            }
            Record::Control(control) => control_touches(control),
        };
        touched.keys.extend(key);
        // Most events are news, and whether they make a task is for the state to say.
        touched.keys.insert(TaskKey::Workflow);
    }
    touched
}

fn event_touches(event: &Event, closed: &mut bool) -> Option<TaskKey> {
    match &event.kind {
        EventKind::ActivityScheduled(_) => Some(TaskKey::Activity(event.id)),
        EventKind::ActivityCompleted { activity_id, .. }
        | EventKind::ActivityFailed { activity_id, .. }
        | EventKind::ActivityTimedOut { activity_id, .. }
        | EventKind::ActivityCancelled { activity_id }
        | EventKind::ActivityCancelRequested { activity_id } => Some(TaskKey::Activity(*activity_id)),
        EventKind::WorkflowCompleted { .. }
        | EventKind::WorkflowFailed { .. }
        | EventKind::WorkflowCancelled { .. }
        | EventKind::WorkflowTerminated { .. }
        | EventKind::WorkflowExecutionTimedOut { .. }
        | EventKind::WorkflowContinuedAsNew { .. } => {
            *closed = true;
            None
        }
        EventKind::WorkflowStarted(_)
        | EventKind::WorkflowTaskCompleted(_)
        | EventKind::WorkflowCancelRequested { .. }
        | EventKind::TimerStarted { .. }
        | EventKind::TimerFired { .. }
        | EventKind::TimerCancelled { .. }
        | EventKind::SignalReceived { .. }
        | EventKind::SideEffectRecorded { .. }
        | EventKind::MarkerRecorded { .. }
        | EventKind::LocalActivityScheduled { .. }
        | EventKind::LocalActivityCompleted { .. }
        | EventKind::LocalActivityFailed { .. }
        | EventKind::LocalActivityExhausted { .. }
        | EventKind::ChildWorkflowStarted { .. }
        | EventKind::ChildWorkflowSpawnedDetached { .. }
        | EventKind::ChildWorkflowCompleted { .. }
        | EventKind::ChildWorkflowFailed { .. }
        | EventKind::ChildWorkflowCancelRequested { .. } => None,
    }
}

fn control_touches(control: &Control) -> Option<TaskKey> {
    match control {
        Control::ActivityAttemptStarted { activity_id, .. }
        | Control::ActivityAttemptFailed { activity_id, .. }
        | Control::ActivityAttemptReleased { activity_id, .. }
        | Control::ActivityRetryDue { activity_id, .. }
        | Control::ActivityHeartbeat { activity_id, .. } => Some(TaskKey::Activity(*activity_id)),
        Control::WorkflowTaskStarted { .. }
        | Control::WorkflowTaskFailed { .. }
        | Control::WorkflowTaskRetryDue { .. }
        | Control::RequestSeen { .. }
        | Control::RequestsForgotten { .. }
        | Control::ChildStartConfirmed { .. }
        | Control::WorkflowTaskExtended { .. }
        | Control::SlaBreached { .. }
        | Control::Paused { .. }
        | Control::Resumed { .. } => None,
    }
}
