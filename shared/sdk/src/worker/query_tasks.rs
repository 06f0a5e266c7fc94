//! One query: bring the run up to date, ask its handlers, answer. Leaves no trace.

use crate::worker::WorkerShared;
use crate::worker::runs::catch_up;
use crate::workflow::run::{QueryError, Run, RunError};
use harvest_ids::EventId;
use harvest_proto::v1::answer_query_request::Outcome;
use harvest_proto::v1::worker_service_client::WorkerServiceClient;
use harvest_proto::v1::{AnswerQueryRequest, QueryTask};
use harvest_wire::{failure, payload};
use harvest_workflow_core::payload::{Failure, Payload};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long an answer may take: callers wait 5 s unless they say otherwise, 60 s at most.
const LONGEST: Duration = Duration::from_secs(60);

/// Answers one query.
pub(crate) async fn run(worker: Arc<WorkerShared>, worker_id: String, task: QueryTask) {
    let deadline = Instant::now() + LONGEST;
    let answer = match payload::or_null("args", task.args.clone()) {
        Ok(args) => answer(&worker, &task, args, deadline).await,
        Err(error) => Err(Failure::engine("QueryFailed", error.to_string())),
    };
    let outcome = match answer {
        Ok(result) => Outcome::Result(payload::to_proto(&result)),
        Err(it) => Outcome::Failure(failure::to_proto(&it)),
    };
    let request = AnswerQueryRequest { query_token: task.query_token, worker_id, outcome: Some(outcome) };
    let call = |connection| {
        let request = request.clone();
        async move { WorkerServiceClient::new(connection).answer_query(request).await }
    };
    if let Err(status) = worker.channels.retry(deadline.min(Instant::now() + Duration::from_secs(5)), None, call).await {
        tracing::debug!(%status, "the answer to a query was not taken");
    }
}

async fn answer(worker: &WorkerShared, task: &QueryTask, args: Payload, deadline: Instant) -> Result<Payload, Failure> {
    let execution_id = task.workflow.as_ref().map(|workflow| workflow.execution_id.as_str()).unwrap_or_default();
    let last = EventId(task.last_event_id);
    let mut up_to_date = match worker.cache.take(execution_id).await {
        Some(cached) => replayed(worker, execution_id, cached, last, deadline).await,
        None => Err(RunError::OutOfStep("it is not in memory".to_owned())),
    };
    if let Err(RunError::OutOfStep(_)) = up_to_date {
        up_to_date = replayed(worker, execution_id, Run::new(worker.registry.clone()), last, deadline).await;
    }
    let run = up_to_date.map_err(|error| match error {
        RunError::Mismatch(_) => Failure::engine("NonDeterminism", error.to_string()),
        RunError::Panicked(_) => Failure::engine("HandlerPanic", error.to_string()),
        RunError::Worker(_) | RunError::OutOfStep(_) => Failure::engine("QueryFailed", error.to_string()),
    })?;
    let asked = run.query(&task.query_name, &args);
    if !run.is_closed() {
        worker.cache.put(execution_id, run);
    }
    asked.map_err(|error| match error {
        QueryError::Unknown { .. } => Failure::engine("UnknownQuery", error.to_string()),
        QueryError::Failed(_) => Failure::engine("QueryFailed", error.to_string()),
        QueryError::Panicked(_) => Failure::engine("HandlerPanic", error.to_string()),
    })
}

async fn replayed(worker: &WorkerShared, execution_id: &str, mut run: Run, last: EventId, deadline: Instant) -> Result<Run, RunError> {
    catch_up(worker, execution_id, &mut run, Vec::new(), last, deadline).await?;
    run.replay()?;
    Ok(run)
}
