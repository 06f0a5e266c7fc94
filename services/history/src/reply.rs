//! From the shard's answers and refusals to the wire.

use crate::shard::operation::{ActivityView, Refusal, RunView};
use harvest_ids::{ShardId, Timestamp};
use harvest_proto::v1;
use harvest_rpc::{Error, Reason};
use harvest_wire::WireError;
use harvest_wire::pause::state_word;
use harvest_workflow_core::decision::Reject;
use std::time::Duration;

/// When to ask a shard again whose store is away. Longer than a frontend waits between tries, so that it hands the refusal on.
const STORE_AWAY_PAUSE: Duration = Duration::from_secs(1);

/// A malformed call.
pub(crate) fn malformed(error: WireError) -> Error {
    let field = error.field().to_owned();
    match error {
        WireError::TooLarge { .. } => Error::too_large(field, error),
        _ => Error::invalid(field, error),
    }
}

/// A refusal as an error of the protocol.
pub(crate) fn error(shard_id: ShardId, owner_address: Option<&str>, refusal: Refusal) -> Error {
    match refusal {
        Refusal::NotOwner => Error::not_owned(shard_id, owner_address),
        Refusal::Unavailable(message) => Error::unavailable(format!("the store is unavailable: {message}")),
        Refusal::StoreAway => Error {
            retry_after: Some(STORE_AWAY_PAUSE),
            ..Error::unavailable(format!("the store of shard {shard_id} is away; whether the call took effect is not known"))
        },
        Refusal::Overloaded { limit } => Error::new(Reason::Overloaded, format!("shard {shard_id} has too much to do: {limit} reached")).with("limit", limit),
        Refusal::NotFound => Error::new(Reason::WorkflowNotFound, "there is no such workflow run"),
        Refusal::AlreadyExists { execution_id, status } => {
            let message = format!("a run of this workflow type and workflow_id exists: {execution_id} ({status})");
            Error::new(Reason::AlreadyRunning, message).with("existing_execution_id", execution_id).with("existing_state", status)
        }
        Refusal::Reject(reject) => reject_error(reject),
        Refusal::Poisoned(message) => Error::new(Reason::Internal, format!("the store refuses this call's data: {message}")),
        Refusal::QueryTimeout => Error::new(Reason::QueryTimeout, "no worker answered the query in time"),
        Refusal::Corrupt(message) => Error::new(Reason::DataLoss, message),
    }
}

fn reject_error(reject: Reject) -> Error {
    match reject {
        Reject::Closed { status, continued_as } => {
            let error = Error::new(Reason::WorkflowClosed, format!("the workflow run is closed ({status})")).with("state", status);
            match continued_as {
                Some(next) => error.with("continued_as", next),
                None => error,
            }
        }
        Reject::StaleTask { reason } => Error::new(Reason::StaleTask, format!("stale task: {reason}")),
        Reject::NotPending => Error::new(Reason::StaleTask, "the task is not pending"),
        Reject::BadCommand { index, message } => Error::new(Reason::BadDecision, format!("command {index}: {message}")),
        Reject::BadDecision { message } => Error::new(Reason::BadDecision, message),
        Reject::Limit { limit, found, allowed } => Error::limit(limit, found, allowed),
        Reject::AlreadyStarted => Error::new(Reason::AlreadyRunning, "the run exists already"),
        Reject::NotFound => Error::new(Reason::WorkflowNotFound, "there is no such workflow run"),
    }
}

fn millis(at: Option<Timestamp>) -> i64 {
    at.map_or(0, Timestamp::as_millis)
}

/// A run's view on the wire.
pub(crate) fn workflow_info(view: &RunView) -> v1::WorkflowInfo {
    v1::WorkflowInfo {
        namespace: view.key.namespace.to_string(),
        workflow_type: view.key.workflow_type.to_string(),
        workflow_id: view.key.workflow_id.to_string(),
        execution_id: view.execution_id.to_string(),
        first_execution_id: view.first_execution_id.to_string(),
        state: state_word(view.status, view.pause.is_some()).to_owned(),
        task_queue: view.task_queue.to_string(),
        started_at_ms: view.started_at.as_millis(),
        closed_at_ms: millis(view.closed_at),
        history_events: view.last_event.0,
        continued_as: view.continued_as.map(|id| id.to_string()).unwrap_or_default(),
        parent_execution_id: view.parent_execution_id.map(|id| id.to_string()).unwrap_or_default(),
        blocked: view.blocked.as_ref().map(|block| v1::NonDeterminismBlock {
            since_ms: block.since.as_millis(),
            count: block.count,
            expected: block.expected.clone(),
            actual: block.actual.clone(),
            message: block.message.clone(),
            event_id: block.event_id.0,
        }),
        pending_activities: view.activities.iter().map(pending_activity).collect(),
        execution_timeout_ms: view.execution_timeout.map_or(0, |span| span.as_millis()),
        deadline_at_ms: millis(view.execution_deadline),
        sla_ms: view.sla.map_or(0, |span| span.as_millis()),
        sla_deadline_at_ms: millis(view.sla_deadline),
        sla_breached_at_ms: millis(view.sla_breached_at),
        paused_at_ms: millis(view.pause.as_ref().map(|pause| pause.since)),
        paused_until_ms: millis(view.pause.as_ref().map(|pause| pause.until)),
        pause_reason: view.pause.as_ref().map(|pause| pause.reason.clone()).unwrap_or_default(),
    }
}

fn pending_activity(view: &ActivityView) -> v1::PendingActivity {
    v1::PendingActivity {
        activity_id: view.activity_id.0,
        activity_type: view.activity_type.clone(),
        attempt: view.attempt.0,
        state: view.state.to_owned(),
        worker_id: view.worker_id.as_ref().map(|id| id.to_string()).unwrap_or_default(),
        retry_at_ms: millis(view.retry_at),
        last_failure: view.last_failure.as_ref().map(harvest_wire::failure::to_proto),
    }
}
