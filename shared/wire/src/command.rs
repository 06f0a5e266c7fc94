//! Commands of workflow code.

use crate::error::WireError;
use crate::field::{self, name, optional_name, optional_span, span, text_or_empty};
use crate::{activity_options, failure, payload};
use harvest_ids::{Attempt, EventId};
use harvest_proto::v1;
use harvest_proto::v1::command::Kind;
use harvest_workflow_core::command::{Command, ScheduleActivity, StartChildWorkflow};

/// Most bytes of a marker's or side effect's name, and of a reason.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Commands in order.
///
/// # Errors
/// [`WireError`] naming the command and the field.
pub fn list(commands: Vec<v1::Command>) -> Result<Vec<Command>, WireError> {
    let each = commands.into_iter().enumerate();
    each.map(|(index, command)| from_proto(command).map_err(|error| error.within(&format!("commands[{index}]")))).collect()
}

/// To the wire.
pub fn to_proto(command: &Command) -> v1::Command {
    let kind = match command {
        Command::ScheduleActivity(it) => Kind::ScheduleActivity(schedule_to_proto(it)),
        Command::ScheduleLocalActivity { activity_type, input } => {
            Kind::ScheduleLocalActivity(v1::ScheduleLocalActivityCommand { activity_type: activity_type.to_string(), input: Some(payload::to_proto(input)) })
        }
        Command::CompleteLocalActivity { command, output } => {
            Kind::CompleteLocalActivity(v1::CompleteLocalActivityCommand { command_index: index_of(*command), output: Some(payload::to_proto(output)) })
        }
        Command::FailLocalActivity { command, attempt, failure: it } => Kind::FailLocalActivity(v1::FailLocalActivityCommand {
            command_index: index_of(*command),
            attempt: attempt.0,
            failure: Some(failure::to_proto(it)),
        }),
        Command::ExhaustLocalActivity { command, attempt, timeout } => Kind::ExhaustLocalActivity(v1::ExhaustLocalActivityCommand {
            command_index: index_of(*command),
            attempt: attempt.0,
            timeout_type: timeout.map(field::activity_timeout_word).unwrap_or_default().to_owned(),
        }),
        Command::CancelActivity { activity_id } => Kind::CancelActivity(v1::CancelActivityCommand { activity_id: activity_id.0 }),
        Command::StartTimer { timer_id, duration } => {
            Kind::StartTimer(v1::StartTimerCommand { timer_id: timer_id.to_string(), duration_ms: duration.as_millis() })
        }
        Command::CancelTimer { started } => Kind::CancelTimer(v1::CancelTimerCommand { started_event_id: started.0 }),
        Command::RecordSideEffect { kind, name, value } => Kind::RecordSideEffect(v1::RecordSideEffectCommand {
            kind: field::side_effect_word(*kind).to_owned(),
            name: name.clone().unwrap_or_default(),
            value: Some(payload::to_proto(value)),
        }),
        Command::RecordMarker { name, details } => {
            Kind::RecordMarker(v1::RecordMarkerCommand { name: name.clone(), details: details.as_ref().map(payload::to_proto) })
        }
        Command::StartChildWorkflow(it) => Kind::StartChildWorkflow(v1::StartChildWorkflowCommand {
            workflow_type: it.workflow_type.to_string(),
            workflow_id: it.workflow_id.to_string(),
            task_queue: text_or_empty(it.task_queue.as_ref()),
            input: Some(payload::to_proto(&it.input)),
            execution_timeout_ms: it.execution_timeout.map(|span| span.as_millis()),
            detached: it.detached,
        }),
        Command::CancelChildWorkflow { started } => Kind::CancelChildWorkflow(v1::CancelChildWorkflowCommand { started_event_id: started.0 }),
        Command::CompleteWorkflow { output } => Kind::CompleteWorkflow(v1::CompleteWorkflowCommand { output: Some(payload::to_proto(output)) }),
        Command::FailWorkflow { failure: it } => Kind::FailWorkflow(v1::FailWorkflowCommand { failure: Some(failure::to_proto(it)) }),
        Command::CancelWorkflow { reason } => Kind::CancelWorkflow(v1::CancelWorkflowCommand { reason: reason.clone() }),
        Command::ContinueAsNew { input, workflow_type, task_queue } => Kind::ContinueAsNew(v1::ContinueAsNewCommand {
            input: Some(payload::to_proto(input)),
            workflow_type: text_or_empty(workflow_type.as_ref()),
            task_queue: text_or_empty(task_queue.as_ref()),
        }),
    };
    v1::Command { kind: Some(kind) }
}

/// From the wire. An unknown variant is refused, never skipped.
///
/// # Errors
/// [`WireError`] naming the field.
pub fn from_proto(command: v1::Command) -> Result<Command, WireError> {
    let Some(kind) = command.kind else {
        return Err(WireError::Garbage { field: "kind".into(), problem: "the command's variant is missing or newer than this program".into() });
    };
    Ok(match kind {
        Kind::ScheduleActivity(it) => Command::ScheduleActivity(Box::new(schedule(it)?)),
        Kind::ScheduleLocalActivity(it) => {
            Command::ScheduleLocalActivity { activity_type: name("activity_type", it.activity_type)?, input: payload::or_null("input", it.input)? }
        }
        Kind::CompleteLocalActivity(it) => Command::CompleteLocalActivity { command: index(it.command_index), output: payload::or_null("output", it.output)? },
        Kind::FailLocalActivity(it) => {
            Command::FailLocalActivity { command: index(it.command_index), attempt: Attempt(it.attempt), failure: failure::required("failure", it.failure)? }
        }
        Kind::ExhaustLocalActivity(it) => Command::ExhaustLocalActivity {
            command: index(it.command_index),
            attempt: Attempt(it.attempt),
            timeout: field::optional_activity_timeout("timeout_type", &it.timeout_type)?,
        },
        Kind::CancelActivity(it) => Command::CancelActivity { activity_id: EventId(it.activity_id) },
        Kind::StartTimer(it) => Command::StartTimer { timer_id: name("timer_id", it.timer_id)?, duration: span("duration_ms", it.duration_ms)? },
        Kind::CancelTimer(it) => Command::CancelTimer { started: EventId(it.started_event_id) },
        Kind::RecordSideEffect(it) => Command::RecordSideEffect {
            kind: field::side_effect_kind("kind", &it.kind)?,
            name: if it.name.is_empty() { None } else { Some(field::text("name", it.name, MAX_TEXT_BYTES)?) },
            value: payload::or_null("value", it.value)?,
        },
        Kind::RecordMarker(it) => {
            if it.name.is_empty() {
                return Err(WireError::Missing { field: "name".into(), allowed: "1 to 1024 bytes are allowed" });
            }
            Command::RecordMarker { name: field::text("name", it.name, MAX_TEXT_BYTES)?, details: payload::optional("details", it.details)? }
        }
        Kind::StartChildWorkflow(it) => Command::StartChildWorkflow(StartChildWorkflow {
            workflow_type: name("workflow_type", it.workflow_type)?,
            workflow_id: name("workflow_id", it.workflow_id)?,
            task_queue: optional_name("task_queue", it.task_queue)?,
            input: payload::or_null("input", it.input)?,
            execution_timeout: optional_span("execution_timeout_ms", it.execution_timeout_ms)?,
            detached: it.detached,
        }),
        Kind::CancelChildWorkflow(it) => Command::CancelChildWorkflow { started: EventId(it.started_event_id) },
        Kind::CompleteWorkflow(it) => Command::CompleteWorkflow { output: payload::or_null("output", it.output)? },
        Kind::FailWorkflow(it) => Command::FailWorkflow { failure: failure::required("failure", it.failure)? },
        Kind::CancelWorkflow(it) => Command::CancelWorkflow { reason: failure::cut(it.reason, MAX_TEXT_BYTES) },
        Kind::ContinueAsNew(it) => Command::ContinueAsNew {
            input: payload::or_null("input", it.input)?,
            workflow_type: optional_name("workflow_type", it.workflow_type)?,
            task_queue: optional_name("task_queue", it.task_queue)?,
        },
    })
}

/// A decision has far fewer commands than this; one that names another is refused by the core.
fn index_of(command: usize) -> u32 {
    u32::try_from(command).unwrap_or(u32::MAX)
}

fn index(command: u32) -> usize {
    usize::try_from(command).unwrap_or(usize::MAX)
}

fn schedule_to_proto(it: &ScheduleActivity) -> v1::ScheduleActivityCommand {
    let options = activity_options::to_proto(&it.options).unwrap_or_default();
    v1::ScheduleActivityCommand {
        activity_type: it.activity_type.to_string(),
        input: Some(payload::to_proto(&it.input)),
        task_queue: options.task_queue,
        retry: options.retry,
        start_to_close_ms: options.start_to_close_ms,
        schedule_to_start_ms: options.schedule_to_start_ms,
        heartbeat_timeout_ms: options.heartbeat_timeout_ms,
        schedule_to_close_ms: options.schedule_to_close_ms,
        attribute: activity_options::to_proto(&it.attribute),
        floor: activity_options::to_proto(&it.floor),
    }
}

fn schedule(it: v1::ScheduleActivityCommand) -> Result<ScheduleActivity, WireError> {
    Ok(ScheduleActivity {
        activity_type: name("activity_type", it.activity_type)?,
        input: payload::or_null("input", it.input)?,
        options: activity_options::read(v1::ActivityOptions {
            task_queue: it.task_queue,
            retry: it.retry,
            start_to_close_ms: it.start_to_close_ms,
            schedule_to_start_ms: it.schedule_to_start_ms,
            heartbeat_timeout_ms: it.heartbeat_timeout_ms,
            schedule_to_close_ms: it.schedule_to_close_ms,
        })?,
        attribute: activity_options::from_proto("attribute", it.attribute)?,
        floor: activity_options::from_proto("floor", it.floor)?,
    })
}
