//! The measure of `max_history_bytes`: what an event weighs. An estimate of its stored size that no encoding can change.

use crate::event::{ChildWorkflow, EventKind};
use crate::payload::{Failure, Payload};

/// What every event weighs besides its texts and payloads: id, time, kind, small numbers.
const BASE_BYTES: usize = 32;

/// The bytes that an event counts for.
pub fn event_bytes(kind: &EventKind) -> u64 {
    u64::try_from(BASE_BYTES + variable_bytes(kind)).unwrap_or(u64::MAX)
}

fn variable_bytes(kind: &EventKind) -> usize {
    match kind {
        EventKind::WorkflowStarted(started) => {
            started.namespace.as_str().len()
                + started.workflow_type.as_str().len()
                + started.workflow_id.as_str().len()
                + started.task_queue.as_str().len()
                + started.request_id.as_ref().map_or(0, |id| id.as_str().len())
                + payload_bytes(&started.input)
        }
        EventKind::WorkflowTaskCompleted(task) => {
            task.worker_id.as_str().len() + task.build_id.len() + task.sdk.len() + task.consumed_signals.len().saturating_mul(8)
        }
        EventKind::WorkflowCompleted { output } | EventKind::ActivityCompleted { output, .. } | EventKind::ChildWorkflowCompleted { output, .. } => {
            payload_bytes(output)
        }
        EventKind::WorkflowFailed { failure } | EventKind::ActivityFailed { failure, .. } | EventKind::ChildWorkflowFailed { failure, .. } => {
            failure_bytes(failure)
        }
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

fn payload_bytes(payload: &Payload) -> usize {
    payload.len() + payload.encoding.as_str().len()
}

fn failure_bytes(failure: &Failure) -> usize {
    failure.message.len() + failure.error_type.len() + failure.details.as_ref().map_or(0, payload_bytes)
}
