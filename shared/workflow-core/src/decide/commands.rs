//! Commands become events, one each and in order. Nothing is emitted here: a decision is planned as a whole before any of it happens.

use super::Emitter;
use super::signal::at_most;
use crate::command::{Command, ScheduleActivity, StartChildWorkflow};
use crate::decision::Reject;
use crate::defaults::{self, Types};
use crate::event::{ActivityScheduled, ChildWorkflow, EventKind};
use crate::limits::Limits;
use crate::payload::{Failure, Payload};
use crate::random::SplitMix64;
use crate::retry::RetryPolicy;
use crate::state::State;
use harvest_ids::{ActivityId, EventId, ExecutionId, Slot, TimerName, Timestamp};
use std::fmt;

/// Most bytes of a text for people (failure messages, reasons): what is longer is cut.
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// Most bytes of a name that is not one of the checked ones (markers, side effects, error types).
const MAX_NAME_BYTES: usize = 255;
/// Most error types that a retry policy may list.
const MAX_LISTED_ERRORS: usize = 1_000;

/// The events of one decision's commands, before they happen.
pub(super) struct Planner<'a> {
    state: &'a State,
    limits: &'a Limits,
    types: &'a Types,
    at: Timestamp,
    /// The event id that the first command will have.
    first: u64,
    random: SplitMix64,
    open_activities: usize,
    open_timers: usize,
    open_children: usize,
    events: Vec<EventKind>,
}

impl<'a> Planner<'a> {
    /// A planner for a decision whose commands follow the `WorkflowTaskCompleted` that comes next.
    pub(super) fn new(emitter: &'a Emitter<'_>, seed: u64) -> Self {
        let state = &*emitter.state;
        Self {
            state,
            limits: emitter.limits,
            types: emitter.types,
            at: emitter.at,
            first: state.last_event_id().0.saturating_add(2),
            random: SplitMix64::new(seed),
            open_activities: state.activities.len(),
            open_timers: state.timers.len(),
            open_children: state.awaited_children,
            events: Vec::new(),
        }
    }

    /// The events of `commands`.
    pub(super) fn plan(mut self, commands: &[Command]) -> Result<Vec<EventKind>, Reject> {
        at_most("max_commands", commands.len(), self.limits.max_commands)?;
        self.events.reserve_exact(commands.len());
        for (index, command) in commands.iter().enumerate() {
            let event = self.event_of(index, command)?;
            let closes = is_terminal(&event);
            self.events.push(event);
            if closes && index + 1 < commands.len() {
                return Err(bad(index, "a command that ends the run must be the last one"));
            }
        }
        Ok(self.events)
    }

    fn event_of(&mut self, index: usize, command: &Command) -> Result<EventKind, Reject> {
        Ok(match command {
            Command::ScheduleActivity(schedule) => self.schedule_activity(index, schedule)?,
            Command::ScheduleLocalActivity { activity_type, input } => {
                EventKind::LocalActivityScheduled { activity_type: activity_type.clone(), input: input.clone() }
            }
            Command::CompleteLocalActivity { command, output } => {
                EventKind::LocalActivityCompleted { activity_id: self.local(index, *command)?, output: output.clone() }
            }
            Command::FailLocalActivity { command, attempt, failure } => EventKind::LocalActivityFailed {
                activity_id: self.local(index, *command)?,
                attempt: *attempt,
                failure: bounded_failure(failure.clone(), self.limits),
            },
            Command::ExhaustLocalActivity { command, attempt, timeout } => {
                EventKind::LocalActivityExhausted { activity_id: self.local(index, *command)?, attempt: *attempt, timeout: *timeout }
            }
            Command::CancelActivity { activity_id } => {
                self.check_activity(index, *activity_id)?;
                EventKind::ActivityCancelRequested { activity_id: *activity_id }
            }
            Command::StartTimer { timer_id, duration } => {
                self.open_timers = self.open_timers.saturating_add(1);
                at_most("max_open_items", self.open_timers, self.limits.max_open_items)?;
                EventKind::TimerStarted { timer_id: timer_id.clone(), duration: *duration }
            }
            Command::CancelTimer { started } => EventKind::TimerCancelled { timer_id: self.timer_name(index, *started)?, started: *started },
            Command::RecordSideEffect { kind, name, value } => {
                if let Some(name) = name {
                    check_name(index, "the side effect's name", name)?;
                }
                EventKind::SideEffectRecorded { kind: *kind, name: name.clone(), value: value.clone() }
            }
            Command::RecordMarker { name, details } => {
                check_name(index, "the marker's name", name)?;
                EventKind::MarkerRecorded { name: name.clone(), details: details.clone() }
            }
            Command::StartChildWorkflow(start) => self.start_child(start)?,
            Command::CancelChildWorkflow { started } => {
                self.check_child(index, *started)?;
                EventKind::ChildWorkflowCancelRequested { started: *started }
            }
            Command::CompleteWorkflow { output } => EventKind::WorkflowCompleted { output: output.clone() },
            Command::FailWorkflow { failure } => EventKind::WorkflowFailed { failure: bounded_failure(failure.clone(), self.limits) },
            Command::CancelWorkflow { reason } => EventKind::WorkflowCancelled { reason: bounded_text(reason) },
            Command::ContinueAsNew { input, workflow_type, task_queue: _ } => {
                let mine = self.state.started().ok_or(Reject::NotFound)?;
                let new_execution_id = ExecutionId::new(mine.execution_id.slot(), self.at, self.random.next());
                EventKind::WorkflowContinuedAsNew { new_execution_id, new_workflow_type: workflow_type.clone(), input: input.clone() }
            }
        })
    }

    fn schedule_activity(&mut self, index: usize, schedule: &ScheduleActivity) -> Result<EventKind, Reject> {
        self.open_activities = self.open_activities.saturating_add(1);
        at_most("max_open_items", self.open_activities, self.limits.max_open_items)?;
        let mine = self.state.started().ok_or(Reject::NotFound)?;
        let options = defaults::resolve(schedule, self.types.activities.get(&schedule.activity_type));
        let retry = options.retry.unwrap_or_default();
        check_policy(index, &retry)?;
        Ok(EventKind::ActivityScheduled(Box::new(ActivityScheduled {
            activity_type: schedule.activity_type.clone(),
            input: schedule.input.clone(),
            task_queue: options.task_queue.unwrap_or_else(|| mine.task_queue.clone()),
            retry,
            start_to_close: options.start_to_close,
            schedule_to_start: options.schedule_to_start,
            heartbeat_timeout: options.heartbeat_timeout,
            schedule_to_close: options.schedule_to_close,
        })))
    }

    /// The open local activity that command `command` of this decision scheduled.
    fn local(&self, index: usize, command: usize) -> Result<ActivityId, Reject> {
        if !matches!(self.events.get(command), Some(EventKind::LocalActivityScheduled { .. })) {
            return Err(bad(index, format!("command {command} scheduled no local activity before it")));
        }
        let id = EventId(self.first.saturating_add(u64::try_from(command).unwrap_or(u64::MAX)));
        let ended = self.events.iter().any(|event| match event {
            EventKind::LocalActivityCompleted { activity_id, .. } | EventKind::LocalActivityExhausted { activity_id, .. } => *activity_id == id,
            _ => false,
        });
        if ended { Err(bad(index, format!("the local activity of command {command} has ended before"))) } else { Ok(id) }
    }

    fn start_child(&mut self, start: &StartChildWorkflow) -> Result<EventKind, Reject> {
        let mine = self.state.started().ok_or(Reject::NotFound)?;
        let child = ChildWorkflow {
            execution_id: ExecutionId::new(Slot::of(&mine.namespace, &start.workflow_id), self.at, self.random.next()),
            workflow_type: start.workflow_type.clone(),
            workflow_id: start.workflow_id.clone(),
            task_queue: start.task_queue.clone().unwrap_or_else(|| mine.task_queue.clone()),
            input: start.input.clone(),
            execution_timeout: start.execution_timeout,
        };
        if start.detached {
            return Ok(EventKind::ChildWorkflowSpawnedDetached { child });
        }
        self.open_children = self.open_children.saturating_add(1);
        at_most("max_open_items", self.open_children, self.limits.max_open_items)?;
        Ok(EventKind::ChildWorkflowStarted { child })
    }

    /// The event that an earlier command of this decision becomes.
    fn planned(&self, id: EventId) -> Option<&EventKind> {
        let index = id.0.checked_sub(self.first)?;
        self.events.get(usize::try_from(index).ok()?)
    }

    fn check_activity(&self, index: usize, id: ActivityId) -> Result<(), Reject> {
        let known = self.state.activities.contains_key(&id)
            || self.state.ended_activities.contains(&id)
            || matches!(self.planned(id), Some(EventKind::ActivityScheduled(_)));
        if known { Ok(()) } else { Err(bad(index, format!("event {id} scheduled no activity"))) }
    }

    fn timer_name(&self, index: usize, started: EventId) -> Result<TimerName, Reject> {
        if let Some(timer) = self.state.timers.get(&started) {
            return Ok(timer.name.clone());
        }
        if let Some(name) = self.state.ended_timers.get(&started) {
            return Ok(name.clone());
        }
        match self.planned(started) {
            Some(EventKind::TimerStarted { timer_id, .. }) => Ok(timer_id.clone()),
            _ => Err(bad(index, format!("event {started} started no timer"))),
        }
    }

    fn check_child(&self, index: usize, started: EventId) -> Result<(), Reject> {
        let planned = matches!(self.planned(started), Some(EventKind::ChildWorkflowStarted { .. } | EventKind::ChildWorkflowSpawnedDetached { .. }));
        if planned || self.state.children.contains_key(&started) { Ok(()) } else { Err(bad(index, format!("event {started} started no child"))) }
    }
}

/// Whether an event ends its run.
pub(super) fn is_terminal(event: &EventKind) -> bool {
    matches!(
        event,
        EventKind::WorkflowCompleted { .. }
            | EventKind::WorkflowFailed { .. }
            | EventKind::WorkflowCancelled { .. }
            | EventKind::WorkflowTerminated { .. }
            | EventKind::WorkflowExecutionTimedOut { .. }
            | EventKind::WorkflowContinuedAsNew { .. }
    )
}

fn bad(index: usize, message: impl Into<String>) -> Reject {
    Reject::BadCommand { index, message: message.into() }
}

fn check_name(index: usize, what: &str, name: &str) -> Result<(), Reject> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    Err(bad(index, format!("{what} has {} bytes; 1 to {MAX_NAME_BYTES} are allowed", name.len())))
}

fn check_policy(index: usize, policy: &RetryPolicy) -> Result<(), Reject> {
    if policy.max_attempts == 0 {
        return Err(bad(index, "retry.max_attempts is 0; it counts the first attempt, so 1 is the least"));
    }
    if !(policy.backoff_coefficient.is_finite() && policy.backoff_coefficient >= 1.0) {
        return Err(bad(index, format!("retry.backoff_coefficient is {}; a finite number of at least 1 is allowed", policy.backoff_coefficient)));
    }
    if policy.non_retryable_errors.len() > MAX_LISTED_ERRORS || policy.non_retryable_errors.iter().any(|name| name.len() > MAX_NAME_BYTES) {
        return Err(bad(index, format!("retry.non_retryable_errors may list {MAX_LISTED_ERRORS} types of {MAX_NAME_BYTES} bytes")));
    }
    Ok(())
}

/// Refuses a payload beyond `max_payload_bytes`.
pub(super) fn check_payload(payload: &Payload, limits: &Limits) -> Result<(), Reject> {
    at_most("max_payload_bytes", payload.len(), limits.max_payload_bytes)
}

/// Why something ends that gave a payload beyond `max_payload_bytes`: trying again would give the same one. `what` names the payload.
pub(super) fn too_large(what: impl fmt::Display, payload: &Payload, limits: &Limits) -> Option<Failure> {
    let (found, allowed) = (payload.len(), limits.max_payload_bytes);
    let message = || format!("{what} has {found} bytes; at most {allowed} are allowed (max_payload_bytes)");
    (found > allowed).then(|| Failure { non_retryable: true, ..Failure::engine("PayloadTooLarge", message()) })
}

/// Why the run ends when one of its commands carries too large a payload.
pub(super) fn command_too_large(commands: &[Command], limits: &Limits) -> Option<Failure> {
    commands.iter().find_map(|command| match command {
        Command::ScheduleActivity(schedule) => too_large(format_args!("the input of activity {}", schedule.activity_type), &schedule.input, limits),
        Command::ScheduleLocalActivity { activity_type, input } => too_large(format_args!("the input of local activity {activity_type}"), input, limits),
        Command::CompleteLocalActivity { output, .. } => too_large("the output of a local activity", output, limits),
        Command::StartChildWorkflow(start) => too_large(format_args!("the input of child workflow {}", start.workflow_id), &start.input, limits),
        Command::RecordSideEffect { value, .. } => too_large("the value of a side effect", value, limits),
        Command::RecordMarker { name, details } => too_large(format_args!("marker {name}"), details.as_ref()?, limits),
        Command::CompleteWorkflow { output } => too_large("the output", output, limits),
        Command::ContinueAsNew { input, .. } => too_large("the input of the next run", input, limits),
        // A failure is cut to its bounds: it ends the run anyway, and as what it says.
        Command::FailWorkflow { .. }
        | Command::CancelWorkflow { .. }
        | Command::FailLocalActivity { .. }
        | Command::ExhaustLocalActivity { .. }
        | Command::CancelActivity { .. }
        | Command::StartTimer { .. }
        | Command::CancelTimer { .. }
        | Command::CancelChildWorkflow { .. } => None,
    })
}

/// A text for people, cut to a bounded length between two characters.
pub(super) fn bounded_text(text: &str) -> String {
    cut(text, MAX_TEXT_BYTES).to_owned()
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// A failure within bounds: texts are cut, details that are too large are dropped. A failure may not itself fail.
pub(super) fn bounded_failure(mut failure: Failure, limits: &Limits) -> Failure {
    if failure.message.len() > MAX_TEXT_BYTES {
        failure.message.truncate(cut(&failure.message, MAX_TEXT_BYTES).len());
    }
    if failure.error_type.len() > MAX_NAME_BYTES {
        failure.error_type.truncate(cut(&failure.error_type, MAX_NAME_BYTES).len());
    }
    failure.details = failure.details.filter(|details| details.len() <= limits.max_payload_bytes);
    failure
}
