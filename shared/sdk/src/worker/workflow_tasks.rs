//! One workflow task: bring the run up to date, let its code decide, answer.

use crate::SDK_VERSION;
use crate::channels::MAX_MESSAGE_BYTES;
use crate::worker::WorkerShared;
use crate::worker::credits::Place;
use crate::worker::eager::{self, Asked};
use crate::worker::local_activities;
use crate::worker::runs::{self, catch_up};
use crate::workflow::run::{Run, RunError};
use crate::workflow::shared::Told;
use harvest_ids::{EventId, Timestamp};
use harvest_proto::v1::fail_workflow_task_request::Cause;
use harvest_proto::v1::worker_service_client::WorkerServiceClient;
use harvest_proto::v1::{CompleteWorkflowTaskRequest, FailWorkflowTaskRequest, NonDeterminism, WorkflowTask};
use harvest_sdk_replay::Completion;
use harvest_wire::command;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// When the server does not say.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// What is left of a task's time for its answer.
pub(crate) const MARGIN: Duration = Duration::from_millis(500);

/// Runs one workflow task in its place, beside whatever else the worker does.
pub(crate) fn spawn(worker: &Arc<WorkerShared>, worker_id: &str, task: WorkflowTask, place: Place) {
    let (shared, worker_id) = (worker.clone(), worker_id.to_owned());
    worker.tasks.spawn(async move {
        run(shared, worker_id, task).await;
        drop(place);
    });
}

async fn run(worker: Arc<WorkerShared>, worker_id: String, mut task: WorkflowTask) {
    let timeout = if task.timeout_ms == 0 { DEFAULT_TIMEOUT } else { Duration::from_millis(task.timeout_ms) };
    let mut deadline = Instant::now() + timeout;
    let execution_id = task.workflow.as_ref().map(|workflow| workflow.execution_id.clone()).unwrap_or_default();
    let last = EventId(task.last_event_id.max(task.events.last().map_or(0, |event| event.event_id)));
    let instant = |millis| Some(millis).filter(|millis| *millis != 0).map(Timestamp::from_millis);
    let told = Told { at: instant(task.started_at_ms), deadline: task.workflow.as_ref().and_then(|workflow| instant(workflow.deadline_at_ms)) };
    let events = std::mem::take(&mut task.events);

    let mut attempt = match worker.cache.take(&execution_id).await {
        Some(mut cached) => {
            cached.set_told(told);
            decide(&worker, &worker_id, &task, cached, events.clone(), last, &mut deadline).await
        }
        None => Err(RunError::OutOfStep("it is not in memory".to_owned())),
    };
    if let Err(RunError::OutOfStep(why)) = &attempt {
        tracing::trace!(execution_id, why, "the run is replayed from its full history");
        let mut run = Run::new(worker.registry.clone());
        run.set_told(told);
        attempt = decide(&worker, &worker_id, &task, run, events, last, &mut deadline).await;
    }
    match attempt {
        Ok((run, completion)) => complete(&worker, &worker_id, &task, &execution_id, run, completion, deadline).await,
        Err(error) => fail(&worker, worker_id, task, &execution_id, error, deadline).await,
    }
}

async fn decide(
    worker: &Arc<WorkerShared>,
    worker_id: &str,
    task: &WorkflowTask,
    mut run: Run,
    events: Vec<harvest_proto::v1::Event>,
    last: EventId,
    deadline: &mut Instant,
) -> Result<(Run, Completion), RunError> {
    let execution_id = task.workflow.as_ref().map(|workflow| workflow.execution_id.as_str()).unwrap_or_default();
    catch_up(worker, execution_id, &mut run, events, last, *deadline).await?;
    let (run, ()) = runs::step(run, *deadline - MARGIN, move |run| run.begin(last)).await?;
    let mut run = local_activities::run_all(worker, worker_id, task, run, deadline).await?;
    let completion = run.completion()?;
    Ok((run, completion))
}

async fn complete(worker: &Arc<WorkerShared>, worker_id: &str, task: &WorkflowTask, execution_id: &str, run: Run, completion: Completion, deadline: Instant) {
    let queue = task.workflow.as_ref().map(|workflow| workflow.task_queue.as_str()).unwrap_or_default();
    let asked = if run.is_closed() { Asked::default() } else { eager::ask(worker, &completion.commands, queue) };
    let request = CompleteWorkflowTaskRequest {
        task_token: task.task_token.clone(),
        worker_id: worker_id.to_owned(),
        commands: completion.commands.iter().map(command::to_proto).collect(),
        consumed_signal_event_ids: completion.consumed_signals.iter().map(|event| event.0).collect(),
        build_id: worker.config.build_id.clone(),
        sdk: SDK_VERSION.to_owned(),
        eager_commands: asked.commands.clone(),
    };
    // In the cache before the answer is sent: the next task can arrive before the reply. A closed run gets no further task.
    let stamp = if run.is_closed() { None } else { Some(worker.cache.put(execution_id, run)) };
    let call = |connection| {
        let request = request.clone();
        async move { WorkerServiceClient::new(connection).max_decoding_message_size(MAX_MESSAGE_BYTES).complete_workflow_task(request).await }
    };
    let reply = match worker.channels.retry(deadline, None, call).await {
        Ok(reply) => Some(reply.into_inner()).filter(|reply| !reply.try_again),
        Err(status) if status.code() == tonic::Code::InvalidArgument => {
            tracing::error!(execution_id, %status, "the server refused what the workflow code asked for");
            None
        }
        Err(status) => {
            tracing::debug!(execution_id, %status, "the decision was not taken");
            None
        }
    };
    match (reply, stamp) {
        (Some(mut reply), stamp) => {
            let news = eager::news(&mut reply, Instant::now());
            if let Some(((events, clock), stamp)) = news.zip(stamp) {
                worker.cache.feed(execution_id, stamp, events, clock);
            }
            eager::start(worker, worker_id, asked, reply.eager_activities);
        }
        (None, Some(stamp)) => worker.cache.evict(execution_id, stamp),
        (None, None) => {}
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
