//! The one function that changes a state.

use super::{CancelRequest, Closed, Outcome, State, memory};
use crate::event::{Event, EventKind, WorkflowStarted};
use crate::machine::activity::Activity;
use crate::machine::child::Child;
use crate::machine::pause::Pause;
use crate::machine::signal::UnreadSignal;
use crate::machine::timer::Timer;
use crate::measure::event_bytes;
use crate::payload::Payload;
use crate::record::{Control, Record};
use harvest_ids::{ActivityId, EventId, Timestamp};

impl State {
    /// Takes one record into account. Total: a record that makes no sense here changes the counters only.
    pub fn apply(&mut self, record: &Record) {
        self.record_count = self.record_count.saturating_add(1);
        match record {
            Record::Event(event) => self.apply_event(event),
            Record::Control(control) => self.apply_control(control),
        }
    }

    fn passed(&mut self, at: Timestamp) {
        self.last_at = self.last_at.max(at);
    }

    fn apply_event(&mut self, event: &Event) {
        let (id, at) = (event.id, event.at);
        self.passed(at);
        self.last_event = id;
        self.history_bytes = self.history_bytes.saturating_add(event_bytes(&event.kind));
        match &event.kind {
            EventKind::WorkflowStarted(started) => self.apply_started(started, id, at),
            EventKind::WorkflowTaskCompleted(task) => {
                for signal in &task.consumed_signals {
                    self.item_bytes -= self.signals.remove(signal).as_ref().map_or(0, memory::signal);
                }
                self.deciding.completed(task.seen, at);
            }
            EventKind::WorkflowCompleted { output } => self.close(at, Outcome::Completed { output: output.clone() }),
            EventKind::WorkflowFailed { failure } => self.close(at, Outcome::Failed { failure: failure.clone() }),
            EventKind::WorkflowCancelled { reason } => self.close(at, Outcome::Cancelled { reason: reason.clone() }),
            EventKind::WorkflowTerminated { reason } => self.close(at, Outcome::Terminated { reason: reason.clone() }),
            EventKind::WorkflowExecutionTimedOut { timeout } => self.close(at, Outcome::TimedOut { timeout: *timeout }),
            EventKind::WorkflowContinuedAsNew { new_execution_id, .. } => self.close(at, Outcome::ContinuedAsNew { new_execution_id: *new_execution_id }),
            EventKind::WorkflowCancelRequested { reason } => {
                self.cancel.get_or_insert_with(|| CancelRequest { event: id, reason: reason.clone() });
                self.deciding.news(id, at);
            }
            EventKind::ActivityScheduled(spec) => {
                let activity = Activity::new(spec, at);
                self.item_bytes += memory::activity(&activity);
                self.activities.insert(id, activity);
            }
            EventKind::ActivityCompleted { activity_id, .. }
            | EventKind::ActivityFailed { activity_id, .. }
            | EventKind::ActivityTimedOut { activity_id, .. }
            | EventKind::ActivityCancelled { activity_id } => self.end_activity(*activity_id, id, at),
            EventKind::ActivityCancelRequested { activity_id } => {
                if let Some(activity) = self.activities.get_mut(activity_id) {
                    activity.request_cancel();
                }
            }
            EventKind::TimerStarted { timer_id, duration } => {
                self.item_bytes += memory::timer(timer_id);
                self.timers.insert(id, Timer { name: timer_id.clone(), deadline: at.plus(*duration) });
            }
            EventKind::TimerFired { started, .. } => {
                self.end_timer(*started);
                self.deciding.news(id, at);
            }
            EventKind::TimerCancelled { started, .. } => self.end_timer(*started),
            EventKind::SignalReceived { name, payload, request_id } => {
                if let Some(request_id) = request_id {
                    self.requests.remember(request_id, at);
                }
                let signal = UnreadSignal { name: name.clone(), payload: payload.clone(), request_id: request_id.clone() };
                self.item_bytes += memory::signal(&signal);
                self.signals.insert(id, signal);
                self.deciding.news(id, at);
            }
            EventKind::SideEffectRecorded { .. }
            | EventKind::MarkerRecorded { .. }
            | EventKind::LocalActivityScheduled { .. }
            | EventKind::LocalActivityCompleted { .. }
            | EventKind::LocalActivityFailed { .. }
            | EventKind::LocalActivityExhausted { .. } => {}
            EventKind::ChildWorkflowStarted { child } => {
                self.children.insert(id, Child::Awaited { execution_id: child.execution_id, cancel_requested: false });
                self.awaited_children = self.awaited_children.saturating_add(1);
            }
            EventKind::ChildWorkflowSpawnedDetached { child } => {
                self.children.insert(id, Child::Detached { execution_id: child.execution_id, cancel_requested: false });
            }
            EventKind::ChildWorkflowCompleted { started, .. } | EventKind::ChildWorkflowFailed { started, .. } => self.end_child(*started, id, at),
            EventKind::ChildWorkflowCancelRequested { started } => {
                if let Some(child) = self.children.get_mut(started) {
                    child.request_cancel();
                }
            }
        }
    }

    fn apply_control(&mut self, control: &Control) {
        match control {
            Control::WorkflowTaskStarted { at, attempt, dispatch } => {
                self.passed(*at);
                self.deciding.started(*at, *attempt, dispatch, self.last_event);
            }
            Control::WorkflowTaskFailed { at, attempt, cause, retry_at } => {
                self.passed(*at);
                self.deciding.failed(*at, *attempt, cause, *retry_at);
            }
            Control::WorkflowTaskRetryDue { at, attempt } => {
                self.passed(*at);
                self.deciding.retry_due(*at, *attempt);
            }
            Control::ActivityAttemptStarted { at, activity_id, attempt, dispatch } => {
                self.on_activity(*at, *activity_id, |activity| activity.attempt_started(*at, *attempt, dispatch));
            }
            Control::ActivityAttemptFailed { at, activity_id, attempt, failure, retry_at } => {
                self.on_activity(*at, *activity_id, |activity| activity.attempt_failed(*at, *attempt, failure, *retry_at));
            }
            Control::ActivityAttemptReleased { at, activity_id, attempt } => {
                self.on_activity(*at, *activity_id, |activity| activity.attempt_released(*at, *attempt));
            }
            Control::ActivityRetryDue { at, activity_id, attempt } => {
                self.on_activity(*at, *activity_id, |activity| activity.retry_due(*at, *attempt));
            }
            Control::ActivityHeartbeat { at, activity_id, attempt: _, details } => {
                self.on_activity(*at, *activity_id, |activity| activity.heartbeat(*at, details.as_ref()));
            }
            Control::RequestSeen { at, request_id } => {
                self.passed(*at);
                self.requests.remember(request_id, *at);
            }
            Control::RequestsForgotten { at, count } => {
                self.passed(*at);
                self.requests.forget_oldest(*count);
            }
            Control::ChildStartConfirmed { at, started: _ } => self.passed(*at),
            Control::WorkflowTaskExtended { at } => {
                self.passed(*at);
                self.deciding.extended(*at);
            }
            Control::SlaBreached { at } => {
                self.passed(*at);
                self.sla_breached_at.get_or_insert(*at);
            }
            Control::Paused { at, until, reason } => {
                self.passed(*at);
                self.pause.get_or_insert_with(|| Box::new(Pause { since: *at, until: *until, reason: reason.clone() }));
            }
            Control::Resumed { at } => {
                self.passed(*at);
                self.end_pause(*at);
            }
        }
    }

    fn apply_started(&mut self, started: &WorkflowStarted, id: EventId, at: Timestamp) {
        if self.started.is_some() {
            return;
        }
        // The input stays in the history: nothing here reads it, and it may be megabytes.
        let input = Payload { data: bytes::Bytes::new(), encoding: started.input.encoding.clone() };
        self.started = Some(Box::new(WorkflowStarted { input, ..started.clone() }));
        self.started_at = at;
        self.deciding.news(id, at);
    }

    fn on_activity(&mut self, at: Timestamp, id: ActivityId, change: impl FnOnce(&mut Activity)) {
        self.passed(at);
        if let Some(activity) = self.activities.get_mut(&id) {
            self.item_bytes -= memory::activity(activity);
            change(activity);
            self.item_bytes += memory::activity(activity);
        }
    }

    fn end_activity(&mut self, activity: ActivityId, event: EventId, at: Timestamp) {
        if let Some(ended) = self.activities.remove(&activity) {
            self.item_bytes -= memory::activity(&ended);
            self.ended_activities.insert(activity);
        }
        self.deciding.news(event, at);
    }

    /// Every clock that stood still is put off by as much.
    fn end_pause(&mut self, at: Timestamp) {
        let Some(pause) = self.pause.take() else { return };
        self.stood_still = self.stood_still.saturating_add(pause.stood_still(self.started_at, at));
        self.deciding.put_off = true;
        for activity in self.activities.values_mut() {
            activity.put_off(&pause, at);
        }
    }

    fn end_timer(&mut self, started: EventId) {
        if let Some(timer) = self.timers.remove(&started) {
            self.ended_timers.insert(started, timer.name);
        }
    }

    fn end_child(&mut self, started: EventId, event: EventId, at: Timestamp) {
        if let Some(child) = self.children.get_mut(&started) {
            if child.is_awaited() {
                self.awaited_children = self.awaited_children.saturating_sub(1);
            }
            *child = Child::Ended;
        }
        self.deciding.news(event, at);
    }

    /// A closed run owes nothing: everything but its identity, its outcome and its request ids is dropped.
    fn close(&mut self, at: Timestamp, outcome: Outcome) {
        if self.closed.is_some() {
            return;
        }
        self.end_pause(at);
        let unread_signals = match outcome {
            Outcome::ContinuedAsNew { .. } => 0,
            Outcome::Completed { .. } | Outcome::Failed { .. } | Outcome::Cancelled { .. } | Outcome::Terminated { .. } | Outcome::TimedOut { .. } => {
                self.signals.len()
            }
        };
        self.closed = Some(Box::new(Closed { at, outcome, unread_signals }));
        let decided_to = self.deciding.decided_to;
        self.deciding = Default::default();
        self.deciding.decided_to = decided_to;
        self.activities.clear();
        self.ended_activities.clear();
        self.timers.clear();
        self.ended_timers.clear();
        self.children.clear();
        self.awaited_children = 0;
        self.signals.clear();
        self.item_bytes = 0;
    }
}
