//! A workflow task ends without a decision.

use super::Emitter;
use super::close::close;
use super::commands::bounded_text;
use super::complete_workflow_task::current_task;
use super::emitter::patient_delay;
use crate::decision::{Reject, Reply};
use crate::event::EventKind;
use crate::input::TaskToken;
use crate::payload::Failure;
use crate::record::{Control, WorkflowTaskFailure};
use harvest_ids::{Attempt, WorkerId};

pub(super) fn fail_workflow_task(emitter: &mut Emitter<'_>, token: &TaskToken, worker_id: &WorkerId, cause: &WorkflowTaskFailure) -> Result<Reply, Reject> {
    let current = current_task(emitter.state, token, worker_id)?;
    let cause = match cause {
        WorkflowTaskFailure::Panicked { message } => WorkflowTaskFailure::Panicked { message: bounded_text(message) },
        WorkflowTaskFailure::WorkerError { message } => WorkflowTaskFailure::WorkerError { message: bounded_text(message) },
        WorkflowTaskFailure::NonDeterminism { message, expected, actual, event_id } => WorkflowTaskFailure::NonDeterminism {
            message: bounded_text(message),
            expected: bounded_text(expected),
            actual: bounded_text(actual),
            event_id: *event_id,
        },
        WorkflowTaskFailure::TimedOut => WorkflowTaskFailure::TimedOut,
        // Only the core finds unseen news; from a worker it would be a retry without back-off.
        WorkflowTaskFailure::UnseenNews => WorkflowTaskFailure::WorkerError { message: "the worker named a cause that is not its to name".to_owned() },
    };
    failed(emitter, current.attempt, cause);
    Ok(Reply::Done)
}

/// Records the failure of the started task with the time of the next try, or ends the run after too many panics in a row.
pub(super) fn failed(emitter: &mut Emitter<'_>, attempt: Attempt, cause: WorkflowTaskFailure) {
    let deciding = &emitter.state.deciding;
    if let WorkflowTaskFailure::Panicked { message } = &cause
        && deciding.panics.saturating_add(1) >= emitter.limits.workflow_panic_max_attempts
    {
        return close(emitter, EventKind::WorkflowFailed { failure: Failure::engine("HandlerPanic", message.as_str()) });
    }
    let failures = deciding.failures;
    let random = emitter.random();
    let delay = match &cause {
        WorkflowTaskFailure::UnseenNews => 0,
        WorkflowTaskFailure::TimedOut => failures.checked_sub(1).map_or(0, |before| patient_delay(before, random)),
        WorkflowTaskFailure::NonDeterminism { .. } | WorkflowTaskFailure::Panicked { .. } | WorkflowTaskFailure::WorkerError { .. } => {
            patient_delay(failures, random)
        }
    };
    let retry_at = emitter.at.plus_millis(delay);
    emitter.control(Control::WorkflowTaskFailed { at: emitter.at, attempt, cause, retry_at });
}
