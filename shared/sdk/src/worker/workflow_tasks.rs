//! One workflow task: bring the run up to date, let its code decide, answer.

use crate::SDK_VERSION;
use crate::worker::WorkerShared;
use crate::worker::runs::catch_up;
use crate::workflow::run::{Run, RunError};
use harvest_ids::EventId;
use harvest_proto::v1::fail_workflow_task_request::Cause;
use harvest_proto::v1::worker_service_client::WorkerServiceClient;
use harvest_proto::v1::{CompleteWorkflowTaskRequest, FailWorkflowTaskRequest, NonDeterminism, WorkflowTask};
use harvest_sdk_replay::Completion;
use harvest_wire::command;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// When the server does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs one workflow task.
pub(crate) async fn run(worker: Arc<WorkerShared>, worker_id: String, mut task: WorkflowTask) {
    let timeout = if task.timeout_ms == 0 { DEFAULT_TIMEOUT } else { Duration::from_millis(task.timeout_ms) };
    let deadline = Instant::now() + timeout;
    let execution_id = task.workflow.as_ref().map(|workflow| workflow.execution_id.clone()).unwrap_or_default();
    let last = EventId(task.last_event_id.max(task.events.last().map_or(0, |event| event.event_id)));
    let events = std::mem::take(&mut task.events);

    let mut attempt = match worker.cache.take(&execution_id) {
        Some(cached) => decide(&worker, &execution_id, cached, events.clone(), last, deadline).await,
        None => Err(RunError::OutOfStep("it is not in memory".to_owned())),
    };
    if let Err(RunError::OutOfStep(why)) = &attempt {
        tracing::trace!(execution_id, why, "the run is replayed from its full history");
        attempt = decide(&worker, &execution_id, Run::new(worker.registry.clone()), events, last, deadline).await;
    }
    match attempt {
        Ok((run, completion)) => complete(&worker, &worker_id, &task, &execution_id, run, completion, deadline).await,
        Err(error) => fail(&worker, worker_id, task, &execution_id, error, deadline).await,
    }
}

async fn decide(
    worker: &WorkerShared,
    execution_id: &str,
    mut run: Run,
    events: Vec<harvest_proto::v1::Event>,
    last: EventId,
    deadline: Instant,
) -> Result<(Run, Completion), RunError> {
    catch_up(worker, execution_id, &mut run, events, last, deadline).await?;
    // In a task of its own, so that code that never comes to rest holds up its own run only.
    let deciding = tokio::spawn(async move {
        let decision = run.decide(last);
        decision.map(|completion| (run, completion))
    });
    match tokio::time::timeout_at(deadline - Duration::from_millis(500), deciding).await {
        Ok(Ok(decided)) => decided,
        Ok(Err(join)) => Err(RunError::Worker(format!("the decision was lost: {join}"))),
        Err(_) => Err(RunError::Worker("the workflow code did not come to rest in time: it blocks, or never waits".to_owned())),
    }
}

async fn complete(worker: &WorkerShared, worker_id: &str, task: &WorkflowTask, execution_id: &str, run: Run, completion: Completion, deadline: Instant) {
    let request = CompleteWorkflowTaskRequest {
        task_token: task.task_token.clone(),
        worker_id: worker_id.to_owned(),
        commands: completion.commands.iter().map(command::to_proto).collect(),
        consumed_signal_event_ids: completion.consumed_signals.iter().map(|event| event.0).collect(),
        build_id: worker.config.build_id.clone(),
        sdk: SDK_VERSION.to_owned(),
    };
    // In the cache before the answer is sent: the next task can arrive before the reply. A closed run gets no further task.
    let stamp = if run.is_closed() { None } else { Some(worker.cache.put(execution_id, run)) };
    let call = |connection| {
        let request = request.clone();
        async move { WorkerServiceClient::new(connection).complete_workflow_task(request).await }
    };
    let keep = match worker.channels.retry(deadline, None, call).await {
        Ok(reply) => !reply.into_inner().try_again,
        Err(status) if status.code() == tonic::Code::InvalidArgument => {
            tracing::error!(execution_id, %status, "the server refused what the workflow code asked for");
            false
        }
        Err(status) => {
            tracing::debug!(execution_id, %status, "the decision was not taken");
            false
        }
    };
    if let Some(stamp) = stamp
        && !keep
    {
        worker.cache.evict(execution_id, stamp);
    }
}

async fn fail(worker: &WorkerShared, worker_id: String, task: WorkflowTask, execution_id: &str, error: RunError, deadline: Instant) {
    tracing::warn!(execution_id, %error, "a workflow task failed");
    let cause = match error {
        RunError::Mismatch(mismatch) => Cause::NonDeterminism(NonDeterminism {
            message: mismatch.message,
            expected: mismatch.expected,
            actual: mismatch.actual,
            event_id: mismatch.event_id.0,
        }),
        RunError::Panicked(message) => Cause::Panicked(message),
        RunError::Worker(message) => Cause::WorkerError(message),
        RunError::OutOfStep(message) => Cause::WorkerError(format!("the full history does not fit: {message}")),
    };
    let request = FailWorkflowTaskRequest { task_token: task.task_token, worker_id, cause: Some(cause) };
    let call = |connection| {
        let request = request.clone();
        async move { WorkerServiceClient::new(connection).fail_workflow_task(request).await }
    };
    if let Err(status) = worker.channels.retry(deadline, None, call).await {
        tracing::debug!(execution_id, %status, "the failure of a workflow task was not taken");
    }
}
