//! The oracle: reads the record log of a run, and nothing else, and says what in it can never be.
//!
//! It keeps its own books, written separately from [`crate::state::State`] on purpose: a check that reads the machine's own flags
//! misses the machine's own mistakes. Tests and the simulation run it over every log they produce.

mod activities;
mod chain;
mod items;
mod workflow_task;

pub use chain::check_chain;

use crate::event::{Event, EventKind, WorkflowStarted, WorkflowTimeout};
use crate::projection::TaskKey;
use crate::record::{Control, Dispatch, Record};
use activities::Activities;
use harvest_ids::{Attempt, DurationMs, Epoch, EventId, RequestId, Timestamp};
use items::{Children, Signals, Timers};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use workflow_task::WorkflowTasks;

/// A record that cannot stand where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {index}: {rule}")]
pub struct Violation {
    /// Its position in the log, from 0.
    pub index: usize,
    /// The rule that it breaks.
    pub rule: String,
}

/// What a log says about the present of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// Whether the run has ended.
    pub closed: bool,
    /// The newest event.
    pub last_event: EventId,
    /// The tasks that must be ready or with a worker, and whether a worker has them.
    pub tasks: BTreeMap<TaskKey, bool>,
    /// The earliest instant at which something must happen by the clock alone.
    pub due_at: Option<Timestamp>,
    /// Signals that workflow code has not taken, in order.
    pub unread_signals: Vec<EventId>,
    /// Open activities, timers and awaited children.
    pub open_items: usize,
}

/// Checks the log of one run.
///
/// # Errors
/// The first [`Violation`].
pub fn check(records: &[Record]) -> Result<(), Violation> {
    review(records).map(|_| ())
}

/// Checks the log of one run and says where it stands.
///
/// # Errors
/// The first [`Violation`].
pub fn review(records: &[Record]) -> Result<Review, Violation> {
    let mut books = Books::default();
    for (index, record) in records.iter().enumerate() {
        books.read(record).map_err(|rule| Violation { index, rule })?;
    }
    Ok(books.review())
}

/// `Err` with the rule that was broken.
type Verdict = Result<(), String>;

/// Breaks `rule` unless `holds`.
fn rule(holds: bool, rule: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(rule()) }
}

/// Everything that the oracle remembers while it reads.
#[derive(Default)]
struct Books {
    started: Option<WorkflowStarted>,
    started_at: Timestamp,
    last_event: EventId,
    last_at: Timestamp,
    closed: bool,
    /// Only what a predecessor handed over was read so far.
    in_prefix: bool,
    /// The last record belongs to a decision's commands.
    in_commands: bool,
    cancel: Option<EventId>,
    /// Since when it is paused, and when that ends by itself.
    paused: Option<(Timestamp, Timestamp)>,
    /// Milliseconds of the pauses that are over.
    stood_still: u64,
    late: bool,
    dispatches: BTreeSet<(Epoch, u64)>,
    /// What the chain remembers, oldest first; `known` holds the same for looking up.
    requests: VecDeque<RequestId>,
    known: BTreeSet<RequestId>,
    /// Request ids that a predecessor handed over and that no signal was read for.
    handed_over: BTreeSet<RequestId>,
    tasks: WorkflowTasks,
    activities: Activities,
    /// Local activities of the decision that is being read: the last failed attempt of each that has not ended.
    locals: BTreeMap<EventId, Attempt>,
    timers: Timers,
    children: Children,
    signals: Signals,
}

impl Books {
    fn read(&mut self, record: &Record) -> Verdict {
        rule(!self.closed, || "nothing follows the end of a run".to_owned())?;
        match record {
            Record::Event(event) => self.event(event),
            Record::Control(control) => {
                self.in_commands = false;
                self.activities.decision_is_over()?;
                self.control(control)
            }
        }
    }

    fn time(&mut self, at: Timestamp) -> Verdict {
        rule(at >= self.last_at, || format!("time never runs backwards in a log: {at} after {}", self.last_at))?;
        self.last_at = at;
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Verdict {
        let first = self.started.is_none();
        rule(first == matches!(event.kind, EventKind::WorkflowStarted(_)), || "the first record, and no other, starts the run".to_owned())?;
        rule(event.id.0 == self.last_event.0 + 1, || format!("event ids are dense: {} after {}", event.id, self.last_event))?;
        if first {
            self.last_at = event.at;
        }
        self.time(event.at)?;
        self.last_event = event.id;
        let handed_over = matches!(event.kind, EventKind::SignalReceived { .. } | EventKind::WorkflowCancelRequested { .. });
        self.in_prefix = first || (self.in_prefix && handed_over);
        self.check_place(&event.kind)?;
        match &event.kind {
            EventKind::WorkflowStarted(started) => {
                self.started = Some((**started).clone());
                self.started_at = event.at;
                self.tasks.news(event.id);
                Ok(())
            }
            EventKind::WorkflowTaskCompleted(task) => {
                self.tasks.completed(&task.worker_id, task.seen)?;
                self.signals.consume(&task.consumed_signals, task.seen)
            }
            EventKind::WorkflowCancelRequested { .. } => {
                rule(self.cancel.is_none(), || "cancelling is asked for once".to_owned())?;
                self.cancel = Some(event.id);
                self.tasks.news(event.id);
                Ok(())
            }
            EventKind::SignalReceived { request_id, .. } => {
                self.signal(request_id.as_ref(), event.id)?;
                self.tasks.news(event.id);
                Ok(())
            }
            EventKind::WorkflowCompleted { .. }
            | EventKind::WorkflowFailed { .. }
            | EventKind::WorkflowCancelled { .. }
            | EventKind::WorkflowTerminated { .. }
            | EventKind::WorkflowExecutionTimedOut { .. }
            | EventKind::WorkflowContinuedAsNew { .. } => self.close(event),
            EventKind::ActivityScheduled(spec) => self.activities.scheduled(event.id, spec, event.at),
            EventKind::ActivityCancelRequested { activity_id } => self.activities.cancel_requested(*activity_id),
            EventKind::ActivityCompleted { activity_id, .. } => self.activities.completed(*activity_id).inspect(|()| self.tasks.news(event.id)),
            EventKind::ActivityFailed { activity_id, attempt, failure } => {
                self.activities.failed(*activity_id, *attempt, failure).inspect(|()| self.tasks.news(event.id))
            }
            EventKind::ActivityTimedOut { activity_id, attempt, timeout } => {
                self.activities.timed_out(*activity_id, *attempt, *timeout, event.at, self.paused.is_some()).inspect(|()| self.tasks.news(event.id))
            }
            EventKind::ActivityCancelled { activity_id } => self.activities.cancelled(*activity_id).inspect(|()| self.tasks.news(event.id)),
            EventKind::LocalActivityScheduled { .. } => {
                self.locals.insert(event.id, Attempt(0));
                Ok(())
            }
            EventKind::LocalActivityFailed { activity_id, attempt, .. } => {
                let failed = self.local(*activity_id)?;
                let next = failed.next();
                self.locals.insert(*activity_id, *attempt);
                rule(*attempt == next, || format!("attempt {attempt} of local activity {activity_id} follows attempt {failed}"))
            }
            EventKind::LocalActivityCompleted { activity_id, .. } => {
                self.local(*activity_id)?;
                self.locals.remove(activity_id);
                Ok(())
            }
            EventKind::LocalActivityExhausted { activity_id, attempt, .. } => {
                let failed = self.local(*activity_id)?;
                self.locals.remove(activity_id);
                rule(*attempt == failed && attempt.0 > 0, || format!("local activity {activity_id} ended after attempt {attempt}, but {failed} failed last"))
            }
            EventKind::TimerStarted { timer_id, duration } => self.timers.started(event.id, timer_id, event.at.plus(*duration)),
            EventKind::TimerFired { timer_id, started } => {
                self.going("a timer fired")?;
                self.timers.fired(*started, timer_id, event.at).inspect(|()| self.tasks.news(event.id))
            }
            EventKind::TimerCancelled { timer_id, started } => self.timers.cancelled(*started, timer_id),
            EventKind::SideEffectRecorded { .. } | EventKind::MarkerRecorded { .. } => Ok(()),
            EventKind::ChildWorkflowStarted { child } => self.children.started(event.id, child, true),
            EventKind::ChildWorkflowSpawnedDetached { child } => self.children.started(event.id, child, false),
            EventKind::ChildWorkflowCompleted { started, .. } | EventKind::ChildWorkflowFailed { started, .. } => {
                self.children.ended(*started).inspect(|()| self.tasks.news(event.id))
            }
            EventKind::ChildWorkflowCancelRequested { started } => self.children.known(*started),
        }
    }

    /// Events of commands stand directly behind the `WorkflowTaskCompleted` of their decision, and nowhere else.
    fn check_place(&mut self, kind: &EventKind) -> Verdict {
        match kind {
            EventKind::WorkflowTaskCompleted(_) => {
                self.activities.decision_is_over()?;
                self.locals.clear();
                self.in_commands = true;
            }
            EventKind::ActivityScheduled(_)
            | EventKind::ActivityCancelRequested { .. }
            | EventKind::LocalActivityScheduled { .. }
            | EventKind::LocalActivityCompleted { .. }
            | EventKind::LocalActivityFailed { .. }
            | EventKind::LocalActivityExhausted { .. }
            | EventKind::TimerStarted { .. }
            | EventKind::TimerCancelled { .. }
            | EventKind::SideEffectRecorded { .. }
            | EventKind::MarkerRecorded { .. }
            | EventKind::ChildWorkflowStarted { .. }
            | EventKind::ChildWorkflowSpawnedDetached { .. }
            | EventKind::ChildWorkflowCancelRequested { .. }
            | EventKind::WorkflowCompleted { .. }
            | EventKind::WorkflowCancelled { .. }
            | EventKind::WorkflowContinuedAsNew { .. } => {
                rule(self.in_commands, || "a command's event stands outside a decision".to_owned())?;
            }
            // A run also fails by panics and by its history cap, outside a decision.
            EventKind::WorkflowFailed { .. } => {}
            EventKind::ActivityCancelled { .. } => self.in_commands = false,
            EventKind::WorkflowStarted(_)
            | EventKind::WorkflowCancelRequested { .. }
            | EventKind::WorkflowTerminated { .. }
            | EventKind::WorkflowExecutionTimedOut { .. }
            | EventKind::ActivityCompleted { .. }
            | EventKind::ActivityFailed { .. }
            | EventKind::ActivityTimedOut { .. }
            | EventKind::TimerFired { .. }
            | EventKind::SignalReceived { .. }
            | EventKind::ChildWorkflowCompleted { .. }
            | EventKind::ChildWorkflowFailed { .. } => {
                self.activities.decision_is_over()?;
                self.in_commands = false;
            }
        }
        Ok(())
    }

    fn control(&mut self, control: &Control) -> Verdict {
        rule(self.started.is_some(), || "the first record starts the run".to_owned())?;
        if !matches!(control, Control::RequestSeen { .. } | Control::RequestsForgotten { .. }) {
            self.in_prefix = false;
        }
        match control {
            Control::WorkflowTaskStarted { at, attempt, dispatch } => {
                self.time(*at)?;
                self.going("a workflow task was started")?;
                self.new_dispatch(dispatch)?;
                self.tasks.started(*at, *attempt, dispatch, self.last_event)
            }
            Control::WorkflowTaskFailed { at, attempt, cause, retry_at } => {
                self.time(*at)?;
                self.tasks.failed(*at, *attempt, cause, *retry_at)
            }
            Control::WorkflowTaskRetryDue { at, attempt } => {
                self.time(*at)?;
                self.going("a back-off ended")?;
                self.tasks.retry_due(*at, *attempt)
            }
            Control::ActivityAttemptStarted { at, activity_id, attempt, dispatch } => {
                self.time(*at)?;
                self.new_dispatch(dispatch)?;
                // Also in a pause: the record of a start before it may have been lost with its owner, and be made up when the worker is heard.
                self.activities.started(*activity_id, *attempt, *at)
            }
            Control::ActivityAttemptFailed { at, activity_id, attempt, failure, retry_at } => {
                self.time(*at)?;
                self.activities.attempt_failed(*activity_id, *attempt, failure, *at, *retry_at, self.paused.map(|(since, _)| since))
            }
            Control::ActivityAttemptReleased { at, activity_id, attempt } => {
                self.time(*at)?;
                self.activities.released(*activity_id, *attempt, *at)
            }
            Control::ActivityRetryDue { at, activity_id, attempt } => {
                self.time(*at)?;
                self.going("a back-off ended")?;
                self.activities.retry_due(*activity_id, *attempt, *at)
            }
            Control::ActivityHeartbeat { at, activity_id, attempt, details: _ } => {
                self.time(*at)?;
                self.activities.heartbeat(*activity_id, *attempt, *at)
            }
            Control::RequestSeen { at: _, request_id } => {
                rule(self.remember(request_id), || format!("request {request_id} is remembered once"))?;
                if self.in_prefix {
                    self.handed_over.insert(request_id.clone());
                }
                Ok(())
            }
            Control::RequestsForgotten { at, count } => {
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                rule(count <= self.requests.len(), || "only what is remembered can be forgotten".to_owned())?;
                for forgotten in self.requests.drain(..count) {
                    self.known.remove(&forgotten);
                }
                self.time(*at)
            }
            Control::ChildStartConfirmed { at, started } => {
                self.time(*at)?;
                self.children.known(*started)
            }
            Control::WorkflowTaskExtended { at } => {
                self.time(*at)?;
                self.tasks.extended(*at)
            }
            Control::SlaBreached { at } => {
                self.time(*at)?;
                self.going("a run became late")?;
                rule(!std::mem::replace(&mut self.late, true), || "a run becomes late once".to_owned())?;
                rule(self.sla_deadline().is_some_and(|deadline| *at >= deadline), || "a run was late before or without its SLA".to_owned())
            }
            Control::Paused { at, until, reason: _ } => {
                self.time(*at)?;
                self.going("a run was paused")?;
                rule(self.late || self.sla_deadline().is_none_or(|deadline| *at < deadline), || {
                    "a late run was paused without saying that it is late".to_owned()
                })?;
                self.paused = Some((*at, *until));
                Ok(())
            }
            Control::Resumed { at } => {
                self.time(*at)?;
                let (since, _) = self.paused.take().ok_or("a run was resumed that was not paused")?;
                self.stood_still += u64::try_from(at.since(since).as_millis()).unwrap_or(u64::MAX);
                self.activities.resumed(since, *at);
                Ok(())
            }
        }
    }

    /// The last failed attempt of a local activity that has not ended; 0 before the first.
    fn local(&self, id: EventId) -> Result<Attempt, String> {
        self.locals.get(&id).copied().ok_or_else(|| format!("event {id} scheduled no local activity in this decision, or it has ended"))
    }

    /// Breaks a rule while the run is paused.
    fn going(&self, what: &str) -> Verdict {
        rule(self.paused.is_none(), || format!("{what} while the run was paused"))
    }

    fn put_off(&self, span: Option<DurationMs>) -> Option<Timestamp> {
        span.map(|span| self.started_at.plus(span).plus_millis(self.stood_still))
    }

    fn sla_deadline(&self) -> Option<Timestamp> {
        self.put_off(self.started.as_ref()?.sla)
    }

    /// A dispatch starts one attempt of one task.
    fn new_dispatch(&mut self, dispatch: &Dispatch) -> Verdict {
        let new = self.dispatches.insert((dispatch.epoch, dispatch.sequence));
        rule(new, || format!("dispatch {}/{} started two attempts", dispatch.epoch, dispatch.sequence))
    }

    /// Whether the id is new to the memory.
    fn remember(&mut self, request_id: &RequestId) -> bool {
        let new = self.known.insert(request_id.clone());
        if new {
            self.requests.push_back(request_id.clone());
        }
        new
    }

    /// A request id is one signal; what a predecessor handed over may stand in its memory as well.
    fn signal(&mut self, request_id: Option<&RequestId>, event: EventId) -> Verdict {
        self.signals.received(event);
        let Some(request_id) = request_id else { return Ok(()) };
        // Handed over ids stand in the memory first, and may become one signal each as long as nothing else happened.
        let handed_over = self.in_prefix && self.handed_over.remove(request_id);
        rule(self.remember(request_id) || handed_over, || format!("request {request_id} was accepted twice"))
    }

    fn close(&mut self, event: &Event) -> Verdict {
        self.closed = true;
        let started = self.started.as_ref().ok_or("the first record starts the run")?;
        let was_late = self.paused.is_none() && self.sla_deadline().is_some_and(|deadline| event.at >= deadline);
        rule(self.late || !was_late, || "a run ended late without saying so".to_owned())?;
        match &event.kind {
            EventKind::WorkflowExecutionTimedOut { timeout } => {
                self.going("a run timed out")?;
                let deadline = match timeout {
                    WorkflowTimeout::Execution => self.put_off(started.execution_timeout),
                    WorkflowTimeout::Chain => started.chain_deadline,
                };
                rule(deadline.is_some_and(|deadline| event.at >= deadline), || format!("a run times out at its deadline ({timeout:?}), not before"))
            }
            EventKind::WorkflowContinuedAsNew { new_execution_id, .. } => {
                let same_slot = new_execution_id.slot() == started.execution_id.slot() && *new_execution_id != started.execution_id;
                rule(same_slot, || "a successor is another run in the slot of its predecessor".to_owned())
            }
            EventKind::WorkflowCompleted { .. } | EventKind::WorkflowCancelled { .. } | EventKind::WorkflowFailed { .. } if self.in_commands => {
                let seen = self.tasks.decided_to();
                let unseen = self.signals.any_after(seen) || self.cancel.is_some_and(|cancel| cancel > seen);
                let sent_back = self.tasks.sent_back_before_decision();
                rule(!unseen || sent_back >= 10, || format!("a decision closed the run over news after event {seen}, having been sent back {sent_back} times"))
            }
            _ => Ok(()),
        }
    }

    fn review(self) -> Review {
        let mut tasks = BTreeMap::new();
        let mut due_at = None;
        if let (Some(started), false) = (&self.started, self.closed) {
            let task = self.tasks.due(started.workflow_task_timeout);
            let dues = match self.paused {
                Some((_, until)) => [Some(until), task.filter(|_| self.tasks.pending() == Some(true)), self.activities.due_with_workers(), None, None, None],
                None => {
                    let sla = self.sla_deadline().filter(|_| !self.late);
                    [self.put_off(started.execution_timeout), sla, started.chain_deadline, task, self.timers.due(), self.activities.due()]
                }
            };
            due_at = dues.into_iter().flatten().min();
            tasks = self.activities.tasks();
            if let Some(with_worker) = self.tasks.pending() {
                tasks.insert(TaskKey::Workflow, with_worker);
            }
            tasks.retain(|_, with_worker| *with_worker || self.paused.is_none());
        }
        let open_items = self.activities.open() + self.timers.open() + self.children.open();
        Review {
            closed: self.closed,
            last_event: self.last_event,
            tasks,
            due_at,
            unread_signals: if self.closed { Vec::new() } else { self.signals.unread() },
            open_items: if self.closed { 0 } else { open_items },
        }
    }
}
