//! The measure of `max_history_bytes`: what an event weighs. An estimate of its stored size that no encoding can change.

use crate::event::{ChildWorkflow, EventKind, WorkflowStarted};
use crate::message::{Message, MessageBody};
use crate::payload::{Failure, Payload};
use crate::record::{Control, Record, WorkflowTaskFailure};
use crate::state::Outcome;

/// What every event weighs besides its texts and payloads: id, time, kind, small numbers.
const BASE_BYTES: usize = 32;

/// The bytes that an event counts for.
pub fn event_bytes(kind: &EventKind) -> u64 {
    u64::try_from(BASE_BYTES + variable_bytes(kind)).unwrap_or(u64::MAX)
}

/// The bytes that a record counts for: as [`event_bytes`] for events, and by the same measure for the others.
pub fn record_bytes(record: &Record) -> u64 {
    match record {
        Record::Event(event) => event_bytes(&event.kind),
        Record::Control(control) => u64::try_from(BASE_BYTES + control_bytes(control)).unwrap_or(u64::MAX),
    }
}

/// The bytes of what a message says, by the same measure.
pub fn message_bytes(message: &Message) -> usize {
    BASE_BYTES
        + match &message.body {
            MessageBody::StartChild { namespace, child, .. } => namespace.as_str().len() + child_bytes(child),
            MessageBody::ChildStartRefused { failure, .. } => failure_bytes(failure),
            MessageBody::ChildClosed { outcome, .. } => match outcome {
                crate::message::ChildOutcome::Completed(output) => payload_bytes(output),
                crate::message::ChildOutcome::Failed(failure) => failure_bytes(failure),
            },
            MessageBody::CancelChild { reason } => reason.len(),
        }
}

fn control_bytes(control: &Control) -> usize {
    match control {
        Control::WorkflowTaskStarted { dispatch, .. } | Control::ActivityAttemptStarted { dispatch, .. } => dispatch.worker_id.as_str().len(),
        Control::WorkflowTaskFailed { cause, .. } => match cause {
            WorkflowTaskFailure::NonDeterminism { message, expected, actual, .. } => message.len() + expected.len() + actual.len(),
            WorkflowTaskFailure::Panicked { message } | WorkflowTaskFailure::WorkerError { message } => message.len(),
            WorkflowTaskFailure::TimedOut | WorkflowTaskFailure::UnseenNews => 0,
        },
        Control::ActivityAttemptFailed { failure, .. } => failure_bytes(failure),
        Control::ActivityHeartbeat { details, .. } => details.as_ref().map_or(0, payload_bytes),
        Control::RequestSeen { request_id, .. } => request_id.as_str().len(),
        Control::Paused { reason, .. } => reason.len(),
        Control::WorkflowTaskRetryDue { .. }
        | Control::ActivityAttemptReleased { .. }
        | Control::ActivityRetryDue { .. }
        | Control::RequestsForgotten { .. }
        | Control::ChildStartConfirmed { .. }
        | Control::WorkflowTaskExtended { .. }
        | Control::SlaBreached { .. }
        | Control::Resumed { .. } => 0,
    }
}

pub(crate) fn started_bytes(started: &WorkflowStarted) -> usize {
    started.namespace.as_str().len()
        + started.workflow_type.as_str().len()
        + started.workflow_id.as_str().len()
        + started.task_queue.as_str().len()
        + started.request_id.as_ref().map_or(0, |id| id.as_str().len())
        + payload_bytes(&started.input)
}

pub(crate) fn outcome_bytes(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Completed { output } => payload_bytes(output),
        Outcome::Failed { failure } => failure_bytes(failure),
        Outcome::Cancelled { reason } | Outcome::Terminated { reason } => reason.len(),
        Outcome::TimedOut { .. } | Outcome::ContinuedAsNew { .. } => 0,
    }
}

fn variable_bytes(kind: &EventKind) -> usize {
    match kind {
        EventKind::WorkflowStarted(started) => started_bytes(started),
        EventKind::WorkflowTaskCompleted(task) => {
            task.worker_id.as_str().len() + task.build_id.len() + task.sdk.len() + task.consumed_signals.len().saturating_mul(8)
        }
        EventKind::WorkflowCompleted { output }
        | EventKind::ActivityCompleted { output, .. }
        | EventKind::LocalActivityCompleted { output, .. }
        | EventKind::ChildWorkflowCompleted { output, .. } => payload_bytes(output),
        EventKind::WorkflowFailed { failure }
        | EventKind::ActivityFailed { failure, .. }
        | EventKind::LocalActivityFailed { failure, .. }
        | EventKind::ChildWorkflowFailed { failure, .. } => failure_bytes(failure),
        EventKind::LocalActivityScheduled { activity_type, input } => activity_type.as_str().len() + payload_bytes(input),
        EventKind::WorkflowCancelRequested { reason } | EventKind::WorkflowCancelled { reason } | EventKind::WorkflowTerminated { reason } => reason.len(),
        EventKind::WorkflowContinuedAsNew { new_workflow_type, input, .. } => {
            new_workflow_type.as_ref().map_or(0, |name| name.as_str().len()) + payload_bytes(input)
        }
        EventKind::ActivityScheduled(activity) => {
            activity.activity_type.as_str().len()
                + activity.task_queue.as_str().len()
                + activity.retry.non_retryable_errors.iter().map(String::len).sum::<usize>()
                + payload_bytes(&activity.input)
        }
        EventKind::WorkflowExecutionTimedOut { .. }
        | EventKind::ActivityTimedOut { .. }
        | EventKind::LocalActivityExhausted { .. }
        | EventKind::ActivityCancelled { .. }
        | EventKind::ActivityCancelRequested { .. }
        | EventKind::ChildWorkflowCancelRequested { .. } => 0,
        EventKind::TimerStarted { timer_id, .. } | EventKind::TimerFired { timer_id, .. } | EventKind::TimerCancelled { timer_id, .. } => {
            timer_id.as_str().len()
        }
        EventKind::SignalReceived { name, payload, request_id } => {
            name.as_str().len() + request_id.as_ref().map_or(0, |id| id.as_str().len()) + payload_bytes(payload)
        }
        EventKind::SideEffectRecorded { name, value, .. } => name.as_ref().map_or(0, String::len) + payload_bytes(value),
        EventKind::MarkerRecorded { name, details } => name.len() + details.as_ref().map_or(0, payload_bytes),
        EventKind::ChildWorkflowStarted { child } | EventKind::ChildWorkflowSpawnedDetached { child } => child_bytes(child),
    }
}

fn child_bytes(child: &ChildWorkflow) -> usize {
    child.workflow_type.as_str().len() + child.workflow_id.as_str().len() + child.task_queue.as_str().len() + payload_bytes(&child.input)
}

/// The bytes of a payload with its tag.
pub fn payload_bytes(payload: &Payload) -> usize {
    payload.len() + payload.encoding.as_str().len()
}

/// The bytes of a failure's texts and details.
pub fn failure_bytes(failure: &Failure) -> usize {
    failure.message.len() + failure.error_type.len() + failure.details.as_ref().map_or(0, payload_bytes)
}
