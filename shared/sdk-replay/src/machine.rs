//! The machine: one run of one workflow function against its history.
//!
//! Who drives it feeds events, calls [`Machine::advance`] until it says [`Step::AtRest`], and lets the code run whenever it is told to.
//! While code runs it calls the asking methods (`schedule_activity`, `start_timer`, ...) and the looking ones (`take`, `take_signal`, ...), which are in `asking.rs`.

use crate::Mismatch;
use crate::error::{FeedError, ReplayError};
use crate::history::{History, RecordedDecision};
use crate::inbox::{Inbox, Signal};
use crate::item::{Handle, Item, ItemKind, Resolution, Stage, WaitKey};
use crate::local::LocalActivity;
use harvest_ids::{EventId, TimerName, Timestamp};
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::{Event, EventKind, WorkflowStarted};
use harvest_workflow_core::payload::Payload;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most commands in one workflow task unless [`Machine::with_max_commands`] says otherwise.
pub const DEFAULT_MAX_COMMANDS: usize = 10_000;

/// What whoever drives the machine does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create the code and run it until it comes to rest.
    Start(Arc<WorkflowStarted>),
    /// Wake what waits for this, run the code until it comes to rest.
    Wake(WaitKey),
    /// All that can be known has been handed out: the live decision, if there is one, is complete.
    AtRest,
}

/// What a live decision asks the server for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completion {
    /// Commands in the order the code asked.
    pub commands: Vec<Command>,
    /// Signals that the code took, by their events.
    pub consumed_signals: Vec<EventId>,
}

/// Where the value of a side effect comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// The history has it: this is what the code saw before.
    Value(Payload),
    /// Nobody has taken it yet: take it from outside and call [`Machine::record_side_effect`].
    Fresh,
    /// The history has something else here; the machine has failed and the code must not go on.
    Diverged,
}

/// One command of the decision being worked out; empty when what it started was cancelled within the same decision.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) command: Option<Command>,
    pub(crate) handle: Option<Handle>,
}

/// Which decision is being worked out.
#[derive(Debug)]
pub(crate) enum Current {
    /// None.
    None,
    /// One that the history has.
    Replayed(RecordedDecision),
    /// One that the history does not have yet.
    Live,
    /// A live one that was handed to the server.
    Submitted,
}

/// One run against its history.
#[derive(Debug)]
pub struct Machine {
    pub(crate) history: History,
    pub(crate) started: Option<Arc<WorkflowStarted>>,
    started_at: Timestamp,
    pub(crate) code_started: bool,
    pub(crate) current: Current,
    /// The last event that the current decision has seen.
    pub(crate) seen: EventId,
    /// The last event applied.
    pub(crate) reached: EventId,
    pub(crate) now: Timestamp,
    pub(crate) slots: Vec<Slot>,
    pub(crate) consumed_signals: Vec<EventId>,
    pub(crate) side_effects_taken: usize,
    /// Local activities that the code waits for and nobody has ended.
    pub(crate) locals: BTreeMap<Handle, LocalActivity>,
    /// How many of the recorded decision's commands have been looked through for ends of local activities.
    pub(crate) locals_taken: usize,
    pub(crate) markers_taken: BTreeSet<usize>,
    pub(crate) markers: BTreeMap<String, Option<Payload>>,
    pub(crate) items: BTreeMap<Handle, Item>,
    pub(crate) by_event: BTreeMap<EventId, Handle>,
    pub(crate) open_timers: BTreeSet<TimerName>,
    pub(crate) next_handle: u64,
    pub(crate) inbox: Inbox,
    pub(crate) named_values: BTreeMap<String, Payload>,
    pub(crate) cancel: Option<(EventId, String)>,
    /// The code has ended, or is being dropped: nothing that it asks for counts.
    pub(crate) closed: bool,
    pub(crate) failure: Option<ReplayError>,
    /// A worker holds a workflow task that has seen so much: one live decision may follow the recorded ones.
    task: Option<EventId>,
    pub(crate) max_commands: usize,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// A machine without history.
    pub fn new() -> Self {
        Self {
            history: History::default(),
            started: None,
            started_at: Timestamp::default(),
            code_started: false,
            current: Current::None,
            seen: EventId(0),
            reached: EventId(0),
            now: Timestamp::default(),
            slots: Vec::new(),
            consumed_signals: Vec::new(),
            side_effects_taken: 0,
            locals: BTreeMap::new(),
            locals_taken: 0,
            markers_taken: BTreeSet::new(),
            markers: BTreeMap::new(),
            items: BTreeMap::new(),
            by_event: BTreeMap::new(),
            open_timers: BTreeSet::new(),
            next_handle: 0,
            inbox: Inbox::default(),
            named_values: BTreeMap::new(),
            cancel: None,
            closed: false,
            failure: None,
            task: None,
            max_commands: DEFAULT_MAX_COMMANDS,
        }
    }

    /// The same with another bound on the commands of one workflow task.
    #[must_use]
    pub fn with_max_commands(mut self, max_commands: usize) -> Self {
        self.max_commands = max_commands;
        self
    }

    /// The event that [`Machine::feed`] needs next.
    pub fn next_event(&self) -> EventId {
        self.history.last.next()
    }

    /// The time of the newest event that was fed; the epoch when there is none.
    pub fn newest_at(&self) -> Timestamp {
        self.history.last_at
    }

    /// Whether only something new can lead to another decision: the code has seen all news that were fed, and the last decision is recorded,
    /// whole. The next event is then the first one that the code does not know.
    pub fn is_caught_up(&self) -> bool {
        if !self.history.news.is_empty() || !self.code_started || self.closed || self.failure.is_some() {
            return false;
        }
        match (&self.current, self.history.decisions.front()) {
            (Current::None, None) => true,
            (Current::Submitted, Some(decision)) => {
                let asked = self.slots.iter().filter(|slot| slot.command.is_some()).count();
                self.history.decisions.len() == 1 && decision.completed.seen == self.seen && decision.commands.len() == asked
            }
            (Current::None | Current::Replayed(_) | Current::Live | Current::Submitted, _) => false,
        }
    }

    /// Takes events, in order; those that the machine has already are skipped.
    ///
    /// # Errors
    /// [`FeedError::Gap`] when events are missing in between, [`FeedError::Malformed`] when no server writes such a history.
    pub fn feed(&mut self, events: impl IntoIterator<Item = Event>) -> Result<(), FeedError> {
        self.history.feed(events)
    }

    /// Allows a live decision about the events up to `seen`, after all recorded ones. Called once per workflow task, after its events
    /// were fed.
    ///
    /// # Errors
    /// [`ReplayError::NotOurs`] when the decision that this machine submitted last is not the one that the history has,
    /// [`ReplayError::Malformed`] when the machine does not have the events of the task or already more decisions than it.
    pub fn begin_task(&mut self, seen: EventId) -> Result<(), ReplayError> {
        self.resolve_submitted()?;
        let decided = self.history.decisions.back().map_or(self.seen, |decision| decision.id);
        if seen > self.history.last || seen < decided {
            let message = format!("a task that has seen it does not fit a history up to {} decided up to {decided}", self.history.last);
            return Err(ReplayError::Malformed { event_id: seen, message });
        }
        self.task = Some(seen);
        Ok(())
    }

    /// Allows bringing the code up to the last recorded decision without deciding anything: for queries.
    ///
    /// # Errors
    /// As [`Machine::begin_task`]; also when the decision that was submitted last is not recorded yet: the code is ahead of the history then.
    pub fn begin_query(&mut self) -> Result<(), ReplayError> {
        self.resolve_submitted()
    }

    /// Hands out what the code observes next, and checks each recorded decision as it is complete. Called when the code is at rest.
    ///
    /// # Errors
    /// [`ReplayError`]: the code does not match the history or asked for too much. The machine stays failed.
    pub fn advance(&mut self) -> Result<Step, ReplayError> {
        loop {
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            if let Some(step) = self.next_observation() {
                return Ok(step);
            }
            if let Some(key) = self.next_recorded_local() {
                return Ok(Step::Wake(key));
            }
            match std::mem::replace(&mut self.current, Current::None) {
                Current::None => {}
                Current::Replayed(decision) => self.settle(&decision)?,
                live @ (Current::Live | Current::Submitted) => {
                    self.current = live;
                    return Ok(Step::AtRest);
                }
            }
            if !self.open_decision() {
                return Ok(Step::AtRest);
            }
        }
    }

    /// The next thing that the current decision has seen and the code has not.
    fn next_observation(&mut self) -> Option<Step> {
        while let Some(event) = self.history.next_news(self.seen) {
            self.reached = event.id;
            self.now = self.now.max(event.at);
            if let Some(key) = self.apply(event)
                && self.code_started
            {
                return Some(Step::Wake(key));
            }
        }
        match &self.started {
            Some(started) if !self.code_started => {
                self.code_started = true;
                Some(Step::Start(started.clone()))
            }
            Some(_) | None => None,
        }
    }

    fn apply(&mut self, event: Event) -> Option<WaitKey> {
        match event.kind {
            EventKind::WorkflowStarted(started) => {
                self.started = Some(Arc::new(*started));
                self.started_at = event.at;
                None
            }
            EventKind::SignalReceived { name, .. } => Some(WaitKey::Signal(name)), // it is in the inbox since the decision began
            EventKind::WorkflowCancelRequested { .. } => Some(WaitKey::Cancel),
            EventKind::ActivityCompleted { activity_id, output } => self.end(activity_id, Resolution::Completed(output)),
            EventKind::ActivityFailed { activity_id, attempt, failure } => self.end(activity_id, Resolution::Failed { failure, attempt: Some(attempt) }),
            EventKind::ActivityTimedOut { activity_id, attempt, timeout } => self.end(activity_id, Resolution::TimedOut { timeout, attempt }),
            EventKind::ActivityCancelled { activity_id } => self.end(activity_id, Resolution::Cancelled),
            EventKind::TimerFired { started, .. } => self.end(started, Resolution::Fired),
            EventKind::ChildWorkflowCompleted { started, output } => self.end(started, Resolution::Completed(output)),
            EventKind::ChildWorkflowFailed { started, failure } => self.end(started, Resolution::Failed { failure, attempt: None }),
            EventKind::WorkflowTaskCompleted(_)
            | EventKind::WorkflowCompleted { .. }
            | EventKind::WorkflowFailed { .. }
            | EventKind::WorkflowCancelled { .. }
            | EventKind::WorkflowTerminated { .. }
            | EventKind::WorkflowExecutionTimedOut { .. }
            | EventKind::WorkflowContinuedAsNew { .. }
            | EventKind::ActivityScheduled(_)
            | EventKind::ActivityCancelRequested { .. }
            | EventKind::TimerStarted { .. }
            | EventKind::TimerCancelled { .. }
            | EventKind::SideEffectRecorded { .. }
            | EventKind::MarkerRecorded { .. }
            | EventKind::LocalActivityScheduled { .. }
            | EventKind::LocalActivityCompleted { .. }
            | EventKind::LocalActivityFailed { .. }
            | EventKind::LocalActivityExhausted { .. }
            | EventKind::ChildWorkflowStarted { .. }
            | EventKind::ChildWorkflowSpawnedDetached { .. }
            | EventKind::ChildWorkflowCancelRequested { .. } => None, // never in the news
        }
    }

    /// The item that event `id` created has ended. An end that nobody waits for any more (a timer that fired while it was being
    /// cancelled, an abandoned activity) changes nothing.
    fn end(&mut self, id: EventId, resolution: Resolution) -> Option<WaitKey> {
        let handle = self.by_event.remove(&id)?;
        let item = self.items.get_mut(&handle)?;
        if let ItemKind::Timer(name) = &item.kind {
            self.open_timers.remove(name);
        }
        if item.abandoned {
            self.items.remove(&handle);
            return None;
        }
        item.stage = Stage::Ended(resolution);
        Some(WaitKey::Item(handle))
    }

    /// Begins the next decision, recorded or live; false when there is none.
    fn open_decision(&mut self) -> bool {
        if let Some(decision) = self.history.decisions.pop_front() {
            self.seen = decision.completed.seen;
            self.current = Current::Replayed(decision);
        } else if let Some(seen) = self.task.take() {
            self.seen = seen;
            self.current = Current::Live;
        } else {
            return false;
        }
        self.slots.clear();
        self.consumed_signals.clear();
        self.side_effects_taken = 0;
        self.locals.clear();
        self.locals_taken = 0;
        self.markers_taken.clear();
        for event in self.history.news.iter().take_while(|event| event.id <= self.seen) {
            match &event.kind {
                EventKind::SignalReceived { name, payload, .. } => self.inbox.push(name.clone(), Signal { event_id: event.id, payload: payload.clone() }),
                EventKind::WorkflowCancelRequested { reason } if self.cancel.is_none() => self.cancel = Some((event.id, reason.clone())),
                _ => {}
            }
        }
        true
    }

    /// The commands of the live decision, for the server. `None` when no live decision is open.
    pub fn take_completion(&mut self) -> Option<Completion> {
        if !matches!(self.current, Current::Live) {
            return None;
        }
        self.current = Current::Submitted;
        Some(Completion { commands: self.commands(), consumed_signals: self.consumed_signals.clone() })
    }

    pub(crate) fn diverge(&mut self, event_id: EventId, expected: String, actual: String) {
        let message = "the workflow code has changed since this run was started, or it is not deterministic".to_owned();
        self.failure = Some(ReplayError::Mismatch(Mismatch { event_id, expected, actual, message }));
    }

    /// The run's first event, once it was applied.
    pub fn started(&self) -> Option<&Arc<WorkflowStarted>> {
        self.started.as_ref()
    }

    /// When the run was started: the time of its first event.
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// Whether the current decision is one that the history has.
    pub fn is_replaying(&self) -> bool {
        matches!(self.current, Current::Replayed(_))
    }

    /// Whether the code has ended (or was detached).
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the code must not go on: the machine has failed.
    pub fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The time of the newest event that the code has observed: the same on every replay.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The last event that the current decision has seen: how long the history is for the code.
    pub fn seen(&self) -> EventId {
        self.seen
    }
}
