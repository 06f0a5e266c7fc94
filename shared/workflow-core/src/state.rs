//! The state of a run: the fold of its records.
//!
//! [`State::apply`] is the only way to change it, live as well as when it is rebuilt, so the two cannot differ. No history is kept
//! here: of what has ended only enough remains to recognise a late reference to it.

mod apply;
mod memory;
mod outcome;
mod project;
mod requests;
mod status;

pub use outcome::Outcome;
pub use project::Deadline;
pub use requests::RequestMemory;
pub use status::Status;

use crate::event::WorkflowStarted;
use crate::machine::activity::{Activity, ActivityPhase};
use crate::machine::child::Child;
use crate::machine::pause::Pause;
use crate::machine::signal::UnreadSignal;
use crate::machine::timer::Timer;
use crate::machine::workflow_task::{Deciding, WorkflowTask};
use crate::projection::Block;
use crate::record::Dispatch;
use harvest_ids::{ActivityId, Attempt, DurationMs, EventId, ExecutionId, RequestId, TimerName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A request to cancel the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    /// Its event.
    pub event: EventId,
    /// Why, for people.
    pub reason: String,
}

/// How and when the run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) at: Timestamp,
    pub(crate) outcome: Outcome,
    pub(crate) unread_signals: usize,
}

/// The state of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    pub(crate) started: Option<Box<WorkflowStarted>>,
    pub(crate) started_at: Timestamp,
    pub(crate) closed: Option<Box<Closed>>,
    pub(crate) last_event: EventId,
    pub(crate) last_at: Timestamp,
    pub(crate) record_count: u64,
    pub(crate) history_bytes: u64,
    pub(crate) deciding: Deciding,
    pub(crate) activities: BTreeMap<ActivityId, Activity>,
    pub(crate) ended_activities: BTreeSet<ActivityId>,
    pub(crate) timers: BTreeMap<EventId, Timer>,
    pub(crate) ended_timers: BTreeMap<EventId, TimerName>,
    pub(crate) children: BTreeMap<EventId, Child>,
    pub(crate) awaited_children: usize,
    pub(crate) signals: BTreeMap<EventId, UnreadSignal>,
    pub(crate) cancel: Option<CancelRequest>,
    pub(crate) requests: RequestMemory,
    pub(crate) pause: Option<Box<Pause>>,
    /// For how many milliseconds the run has stood still in pauses that are over.
    pub(crate) stood_still: u64,
    pub(crate) sla_breached_at: Option<Timestamp>,
    /// Memory of activities, timers and signals; see `memory`.
    pub(crate) item_bytes: usize,
}

impl State {
    /// The state before the first record.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The fold of `records`.
    pub fn from_records<'a>(records: impl IntoIterator<Item = &'a crate::record::Record>) -> Self {
        let mut state = Self::empty();
        for record in records {
            state.apply(record);
        }
        state
    }

    /// Whether the run was ever started.
    pub fn exists(&self) -> bool {
        self.started.is_some()
    }

    /// Whether the run was started and has not ended.
    pub fn is_open(&self) -> bool {
        self.exists() && self.closed.is_none()
    }

    /// Whether and how the run ended; [`Status::Running`] also before its start.
    pub fn status(&self) -> Status {
        self.closed.as_ref().map_or(Status::Running, |closed| closed.outcome.status())
    }

    /// What the run was started with: its identity. The `input` is empty here, because only the history needs it.
    pub fn started(&self) -> Option<&WorkflowStarted> {
        self.started.as_deref()
    }

    /// When the run was started; `None` before.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.started.as_ref().map(|_| self.started_at)
    }

    /// When the run ended.
    pub fn closed_at(&self) -> Option<Timestamp> {
        self.closed.as_ref().map(|closed| closed.at)
    }

    /// How the run ended, with what it left behind.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.closed.as_ref().map(|closed| &closed.outcome)
    }

    /// The run's successor, when it continued as new.
    pub fn continued_as(&self) -> Option<ExecutionId> {
        self.outcome().and_then(Outcome::continued_as)
    }

    /// The newest event; 0 before the first.
    pub fn last_event_id(&self) -> EventId {
        self.last_event
    }

    /// The time of the newest record: the next one is not earlier.
    pub fn last_record_at(&self) -> Timestamp {
        self.last_at
    }

    /// All records so far, numbered or not.
    pub fn record_count(&self) -> u64 {
        self.record_count
    }

    /// Bytes of all events, by [`crate::measure::event_bytes`].
    pub fn history_bytes(&self) -> u64 {
        self.history_bytes
    }

    /// Where the workflow task is.
    pub fn workflow_task(&self) -> &WorkflowTask {
        &self.deciding.task
    }

    /// The last event that the last decision had seen; 0 before the first decision. A worker that has the run in memory from then
    /// needs the events after it.
    pub fn decided_to(&self) -> EventId {
        self.deciding.decided_to
    }

    /// Why the run is blocked by non-determinism, if it is.
    pub fn blocked(&self) -> Option<&Block> {
        self.deciding.block.as_ref()
    }

    /// An activity that has not ended.
    pub fn activity(&self, id: ActivityId) -> Option<&Activity> {
        self.activities.get(&id)
    }

    /// All activities that have not ended, oldest first.
    pub fn activities(&self) -> impl Iterator<Item = (ActivityId, &Activity)> {
        self.activities.iter().map(|(id, activity)| (*id, activity))
    }

    /// The attempts that workers are running, for watching their liveness.
    pub fn running_activities(&self) -> impl Iterator<Item = (ActivityId, Attempt, &Dispatch)> {
        self.activities.iter().filter_map(|(id, activity)| match &activity.phase {
            ActivityPhase::Running { attempt, dispatch, .. } => Some((*id, *attempt, dispatch)),
            ActivityPhase::Ready { .. } | ActivityPhase::Backoff { .. } => None,
        })
    }

    /// Open timers by the event that started them.
    pub fn timers(&self) -> impl Iterator<Item = (EventId, &Timer)> {
        self.timers.iter().map(|(id, timer)| (*id, timer))
    }

    /// Children by the event that started them; those that ended included.
    pub fn children(&self) -> impl Iterator<Item = (EventId, &Child)> {
        self.children.iter().map(|(id, child)| (*id, child))
    }

    /// Signals that workflow code has not taken, in the order they arrived. Empty once the run is closed.
    pub fn unread_signals(&self) -> impl Iterator<Item = (EventId, &UnreadSignal)> {
        self.signals.iter().map(|(id, signal)| (*id, signal))
    }

    /// How many signals workflow code has not taken; stays after the close (0 after continue-as-new: they travelled).
    pub fn unread_signal_count(&self) -> usize {
        self.closed.as_ref().map_or(self.signals.len(), |closed| closed.unread_signals)
    }

    /// Whether somebody asked the run to cancel itself.
    pub fn cancel_requested(&self) -> Option<&CancelRequest> {
        self.cancel.as_ref()
    }

    /// The pause that the run is in.
    pub fn pause(&self) -> Option<&Pause> {
        self.pause.as_deref()
    }

    /// When the run's time is up: its start and its execution timeout, put off by the pauses that are over.
    pub fn execution_deadline(&self) -> Option<Timestamp> {
        self.deadline_after(self.started.as_ref()?.execution_timeout)
    }

    /// When the run counts as late, put off like [`State::execution_deadline`].
    pub fn sla_deadline(&self) -> Option<Timestamp> {
        self.deadline_after(self.started.as_ref()?.sla)
    }

    fn deadline_after(&self, span: Option<DurationMs>) -> Option<Timestamp> {
        span.map(|span| self.started_at.plus(span).plus_millis(self.stood_still))
    }

    /// Whether a pause has put the run's deadlines off since the last decision: whoever decided it does not know the present ones.
    pub fn is_put_off_since_decision(&self) -> bool {
        self.deciding.put_off
    }

    /// When the run was found to be late.
    pub fn sla_breached_at(&self) -> Option<Timestamp> {
        self.sla_breached_at
    }

    /// Whether the run is late at `now` and that is not recorded. It cannot become late while it is paused.
    pub(crate) fn is_late(&self, now: Timestamp) -> bool {
        self.pause.is_none() && self.sla_breached_at.is_none() && self.sla_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Whether the chain remembers this request id from a signal, a cancel request or a termination.
    pub fn request_seen(&self, id: &RequestId) -> bool {
        self.requests.contains(id)
    }

    /// Whether `id` is the request that started the chain.
    pub fn started_by(&self, id: &RequestId) -> bool {
        self.started.as_ref().is_some_and(|started| started.request_id.as_ref() == Some(id))
    }
}
