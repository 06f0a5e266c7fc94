//! Validated hellos and answers of workers.

use crate::error::{WireError, wide};
use crate::field::{self, name, name_or_default, optional_name, optional_span, required, text};
use crate::{activity_options, command, failure, payload, token};
use harvest_ids::{ActivityType, EventId, Namespace, TaskQueue, Timestamp, WorkerId, WorkflowType};
use harvest_proto::v1;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::input::{ActivityOutcome, CompleteWorkflowTask, TaskToken};
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::record::WorkflowTaskFailure;
use std::collections::BTreeSet;

/// Most bytes of a build id or SDK name; longer ones are cut.
const MAX_LABEL_BYTES: usize = 255;

/// Most queues in a worker's hello.
pub const MAX_HELLO_QUEUES: usize = 64;
/// Most types of a kind in a worker's hello.
pub const MAX_HELLO_TYPES: usize = 1_000;

/// Checks a worker's hello: names, counts and declared spans. Returns it with the tenant spelled out.
///
/// # Errors
/// [`WireError`] naming the field and what is allowed.
pub fn hello(mut hello: v1::Hello) -> Result<(Namespace, v1::Hello), WireError> {
    let namespace: Namespace = name_or_default("namespace", std::mem::take(&mut hello.namespace))?;
    hello.namespace = namespace.to_string();
    count("task_queues", hello.task_queues.len(), MAX_HELLO_QUEUES, "queues")?;
    count("workflow_types", hello.workflow_types.len(), MAX_HELLO_TYPES, "types")?;
    count("activity_types", hello.activity_types.len(), MAX_HELLO_TYPES, "types")?;
    if hello.task_queues.is_empty() {
        return Err(WireError::Missing { field: "task_queues".into(), allowed: "1 to 64 queues are allowed" });
    }
    for queue in &hello.task_queues {
        name::<TaskQueue>("task_queues", queue.clone())?;
    }
    for it in &hello.workflow_types {
        name::<WorkflowType>("workflow_types.name", it.name.clone())?;
        field::span_or_none("workflow_types.execution_timeout_ms", it.execution_timeout_ms)?;
        field::span_or_none("workflow_types.chain_execution_timeout_ms", it.chain_execution_timeout_ms)?;
    }
    for it in &hello.activity_types {
        name::<ActivityType>("activity_types.name", it.name.clone())?;
        activity_options::from_proto("activity_types.options", it.options.clone())?;
    }
    optional_name::<WorkerId>("resume_worker_id", hello.resume_worker_id.clone())?;
    for (field, label) in [("identity", &hello.identity), ("build_id", &hello.build_id), ("sdk", &hello.sdk)] {
        text(field, label.clone(), 255)?;
        if label.contains('\0') {
            return Err(WireError::Nul { field: field.to_owned() });
        }
    }
    Ok((namespace, hello))
}

fn count(field: &str, found: usize, allowed: usize, unit: &'static str) -> Result<(), WireError> {
    if found > allowed {
        return Err(WireError::TooLarge { field: field.to_owned(), found: wide(found), allowed: wide(allowed), unit });
    }
    Ok(())
}

/// A decision whose envelope is well-formed. The commands are checked apart: malformed ones fail the workflow task, they do not refuse the call.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The task it answers.
    pub token: TaskToken,
    /// The session that answers.
    pub worker_id: WorkerId,
    /// The whole decision, or why its commands are malformed.
    pub decision: Result<CompleteWorkflowTask, WireError>,
    /// Which of its commands schedule an activity that the worker wants in the reply.
    pub eager_commands: BTreeSet<usize>,
}

/// What workflow code decides about an activity's result, worked out before the result is recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionAhead {
    /// The last event that the worker has.
    pub last_event: EventId,
    /// The time of the result as workflow code has seen it.
    pub completed_at: Timestamp,
    /// The worker's build.
    pub build_id: String,
    /// The worker's SDK.
    pub sdk: String,
    /// Events of signals that the code took.
    pub consumed_signals: Vec<EventId>,
    /// What the code asked for, in order.
    pub commands: Vec<Command>,
    /// Which of the commands schedule an activity that the worker wants in the reply.
    pub eager_commands: BTreeSet<usize>,
}

/// How an attempt of an activity ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedActivity {
    /// The task it answers.
    pub token: TaskToken,
    /// The session that answers.
    pub worker_id: WorkerId,
    /// How.
    pub outcome: ActivityOutcome,
    /// What follows from it in workflow code. A malformed one is left out: the same code will say the same to the workflow task that comes
    /// then, which can fail for it.
    pub ahead: Option<DecisionAhead>,
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
    let eager_commands = indices(&request.eager_commands);
    let decision = command::list(request.commands).map(|commands| CompleteWorkflowTask {
        token: token.clone(),
        worker_id: worker_id.clone(),
        build_id,
        sdk,
        consumed_signals,
        commands,
    });
    Ok(Decided { token, worker_id, decision, eager_commands })
}

fn indices(indices: &[u32]) -> BTreeSet<usize> {
    indices.iter().filter_map(|index| usize::try_from(*index).ok()).collect()
}

fn decision_ahead(it: v1::DecisionAhead) -> Result<DecisionAhead, WireError> {
    Ok(DecisionAhead {
        last_event: EventId(it.last_event_id),
        completed_at: Timestamp::from_millis(it.completed_at_ms),
        build_id: failure::cut(it.build_id, MAX_LABEL_BYTES),
        sdk: failure::cut(it.sdk, MAX_LABEL_BYTES),
        consumed_signals: field::event_ids(it.consumed_signal_event_ids),
        commands: command::list(it.commands)?,
        eager_commands: indices(&it.eager_commands),
    })
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
pub fn close_activity(request: v1::CloseActivityRequest) -> Result<ClosedActivity, WireError> {
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
    let completed = matches!(outcome, ActivityOutcome::Completed(_));
    Ok(ClosedActivity {
        token: activity_token(&request.task_token)?,
        worker_id: name("worker_id", request.worker_id)?,
        outcome,
        ahead: request.decision_ahead.filter(|_| completed).and_then(|ahead| decision_ahead(ahead).ok()),
    })
}

/// Reads a heartbeat.
///
/// # Errors
/// [`WireError`] naming the field.
pub fn heartbeat(request: v1::HeartbeatRequest) -> Result<(TaskToken, WorkerId, Option<Payload>), WireError> {
    let details = payload::optional("details", request.details)?;
    Ok((token::decode(&request.task_token)?, name("worker_id", request.worker_id)?, details))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_bounded_and_its_names_are_checked() {
        let good = || v1::Hello { task_queues: vec!["default".into()], ..Default::default() };
        assert_eq!(hello(good()).unwrap().1.namespace, "default");
        assert_eq!(hello(v1::Hello::default()).unwrap_err().field(), "task_queues");
        assert_eq!(
            hello(v1::Hello { task_queues: vec!["q".into(); 65], ..good() }).unwrap_err().to_string(),
            "task_queues has 65 queues; at most 64 are allowed"
        );
        let types = vec![v1::WorkflowTypeInfo::default()];
        assert_eq!(hello(v1::Hello { workflow_types: types, ..good() }).unwrap_err().field(), "workflow_types.name");
    }
}
