//! Validated answers of workers.

use crate::error::WireError;
use crate::field::{self, name, optional_span, required};
use crate::{command, failure, payload, token};
use harvest_ids::{EventId, WorkerId};
use harvest_proto::v1;
use harvest_workflow_core::input::{ActivityOutcome, CompleteWorkflowTask, TaskToken};
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::record::WorkflowTaskFailure;

/// Most bytes of a build id or SDK name; longer ones are cut.
const MAX_LABEL_BYTES: usize = 255;

/// A decision whose envelope is well-formed. The commands are checked apart: malformed ones fail the workflow task, they do not refuse the call.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The task it answers.
    pub token: TaskToken,
    /// The session that answers.
    pub worker_id: WorkerId,
    /// The whole decision, or why its commands are malformed.
    pub decision: Result<CompleteWorkflowTask, WireError>,
}

/// Reads a decision.
///
/// # Errors
/// [`WireError`] for `task_token` and `worker_id`.
pub fn complete_workflow_task(request: v1::CompleteWorkflowTaskRequest) -> Result<Decided, WireError> {
    let token = workflow_token(&request.task_token)?;
    let worker_id: WorkerId = name("worker_id", request.worker_id)?;
    let (build_id, sdk) = (failure::cut(request.build_id, MAX_LABEL_BYTES), failure::cut(request.sdk, MAX_LABEL_BYTES));
    let consumed_signals = field::event_ids(request.consumed_signal_event_ids);
    let decision = command::list(request.commands).map(|commands| CompleteWorkflowTask {
        token: token.clone(),
        worker_id: worker_id.clone(),
        build_id,
        sdk,
        consumed_signals,
        commands,
    });
    Ok(Decided { token, worker_id, decision })
}

/// Reads why a workflow task could not be decided.
///
/// # Errors
/// [`WireError`] naming the field.
pub fn fail_workflow_task(request: v1::FailWorkflowTaskRequest) -> Result<(TaskToken, WorkerId, WorkflowTaskFailure), WireError> {
    use v1::fail_workflow_task_request::Cause;
    let cut = |text| failure::cut(text, failure::MAX_MESSAGE_BYTES);
    let cause = match required("cause", request.cause)? {
        Cause::NonDeterminism(it) => {
            WorkflowTaskFailure::NonDeterminism { message: cut(it.message), expected: cut(it.expected), actual: cut(it.actual), event_id: EventId(it.event_id) }
        }
        Cause::Panicked(message) => WorkflowTaskFailure::Panicked { message: cut(message) },
        Cause::WorkerError(message) => WorkflowTaskFailure::WorkerError { message: cut(message) },
    };
    Ok((workflow_token(&request.task_token)?, name("worker_id", request.worker_id)?, cause))
}

/// Reads how an attempt of an activity ended.
///
/// # Errors
/// [`WireError`] naming the field.
pub fn close_activity(request: v1::CloseActivityRequest) -> Result<(TaskToken, WorkerId, ActivityOutcome), WireError> {
    use v1::close_activity_request::Outcome;
    let outcome = match required("outcome", request.outcome)? {
        Outcome::Completed(output) => ActivityOutcome::Completed(payload::from_proto(output).map_err(|error| error.within("completed"))?),
        Outcome::Failed(it) => ActivityOutcome::Failed {
            failure: failure::required("failure", it.failure).map_err(|error| error.within("failed"))?,
            // 0 is "no hint", as everywhere a hint may be absent.
            retry_after: optional_span("failed.retry_after_ms", it.retry_after_ms.filter(|millis| *millis > 0))?,
        },
        Outcome::Cancelled(_) => ActivityOutcome::Cancelled,
        Outcome::Released(_) => ActivityOutcome::Released,
    };
    Ok((activity_token(&request.task_token)?, name("worker_id", request.worker_id)?, outcome))
}

/// Reads a heartbeat.
///
/// # Errors
/// [`WireError`] naming the field.
pub fn heartbeat(request: v1::HeartbeatRequest) -> Result<(TaskToken, WorkerId, Option<Payload>), WireError> {
    let details = payload::optional("details", request.details)?;
    Ok((activity_token(&request.task_token)?, name("worker_id", request.worker_id)?, details))
}

/// Reads the outcome of a query: the answer, or why there is none.
///
/// # Errors
/// [`WireError`] naming the field.
pub fn query_outcome(outcome: Option<v1::answer_query_request::Outcome>) -> Result<Result<Payload, Failure>, WireError> {
    use v1::answer_query_request::Outcome;
    Ok(match required("outcome", outcome)? {
        Outcome::Result(answer) => Ok(payload::from_proto(answer).map_err(|error| error.within("result"))?),
        Outcome::Failure(it) => Err(failure::from_proto(it).map_err(|error| error.within("failure"))?),
    })
}

fn workflow_token(bytes: &[u8]) -> Result<TaskToken, WireError> {
    let token = token::decode(bytes)?;
    if token.activity_id.is_some() {
        return Err(WireError::Combination { field: "task_token".into(), problem: "it is an activity's; the token of a workflow task is allowed" });
    }
    Ok(token)
}

fn activity_token(bytes: &[u8]) -> Result<TaskToken, WireError> {
    let token = token::decode(bytes)?;
    if token.activity_id.is_none() {
        return Err(WireError::Combination { field: "task_token".into(), problem: "it is a workflow task's; the token of an activity is allowed" });
    }
    Ok(token)
}
