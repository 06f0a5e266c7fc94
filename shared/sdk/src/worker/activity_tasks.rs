//! One attempt of an activity: run it, report how it ended.

use crate::activity::{ActivityContext, ActivityInfo, AttemptStart, HeartbeatAnswer};
use crate::channels::{MAX_MESSAGE_BYTES, is_stale};
use crate::error::{ActivityFailure, CANCELLED, HANDLER_PANIC};
use crate::worker::attempts::{Attempt, Attempts};
use crate::worker::credits::Place;
use crate::worker::{WorkerShared, ahead};
use crate::workflow::run::{ServerClock, panic_message};
use futures::FutureExt as _;
use harvest_ids::Timestamp;
use harvest_proto::v1::close_activity_request::Outcome;
use harvest_proto::v1::worker_service_client::WorkerServiceClient;
use harvest_proto::v1::{self, ActivityTask, CloseActivityRequest, HeartbeatRequest};
use harvest_wire::{failure, payload};
use harvest_workflow_core::payload::Payload;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the outcome of an attempt is offered to the server.
const REPORT: Duration = Duration::from_secs(300);
/// The same once the worker is shutting down and waits no longer.
pub(crate) const FAREWELL: Duration = Duration::from_secs(5);
/// The longest time between heartbeats that go to the server.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Runs one attempt in its place, beside everything else. Gives it back when there is no place for it, or no time.
pub(crate) fn spawn(worker: &Arc<WorkerShared>, worker_id: &str, task: ActivityTask, place: Option<Place>) {
    let given_back = place.is_none() || worker.is_draining();
    let (shared, id) = (worker.clone(), worker_id.to_owned());
    worker.tasks.spawn(async move {
        if given_back {
            release(shared, id, task).await;
        } else {
            run(shared, id, task).await;
        }
        drop(place);
    });
}

/// Gives a task back that has not begun.
async fn release(worker: Arc<WorkerShared>, worker_id: String, task: ActivityTask) {
    report(&worker, &worker_id, &task, Outcome::Released(v1::Released {}), None, Instant::now() + FAREWELL).await;
}

/// Runs one attempt.
async fn run(worker: Arc<WorkerShared>, worker_id: String, task: ActivityTask) {
    let Some((attempt, _running)) = Attempts::begin(&worker, &task.task_token) else { return };
    let started = ServerClock { showed: Timestamp::from_millis(task.started_at_ms), heard: Instant::now() };
    let Some(outcome) = outcome(&worker, &worker_id, &task, &attempt).await else {
        tracing::debug!(activity_type = task.activity_type, "an attempt that is not this worker's any more was aborted");
        return;
    };
    let deadline = Instant::now() + if attempt.abort.is_cancelled() { FAREWELL } else { REPORT };
    // Without a heartbeat nothing of this attempt is recorded after its start.
    let started = (task.started_at_ms > 0 && !attempt.has_beaten()).then_some(started);
    report(&worker, &worker_id, &task, outcome, started, deadline).await;
}

/// How the attempt ended; `None` when nobody wants to know any more.
async fn outcome(worker: &Arc<WorkerShared>, worker_id: &str, task: &ActivityTask, attempt: &Attempt) -> Option<Outcome> {
    let Some(registration) = worker.registry.activities.get(task.activity_type.as_str()) else {
        let message = format!("activity type {:?} is not registered in this worker", task.activity_type);
        return Some(failed(&ActivityFailure::new("ActivityNotRegistered", message)));
    };
    let input = match payload::or_null("input", task.input.clone()) {
        Ok(input) => input,
        Err(error) => return Some(failed(&ActivityFailure::non_retryable("InvalidInput", error.to_string()))),
    };
    let context = context(worker, worker_id, task, attempt);
    let limit = longest(task).map(|longest| Instant::now() + longest);
    let (start, running_context) = (registration.start.clone(), context.clone());
    // Made inside the guarded future: the author's code may panic before its first await.
    let running = AssertUnwindSafe(async move {
        match start(running_context, &input) {
            Ok(running) => running.await,
            Err(error) => Err(ActivityFailure::non_retryable("InvalidInput", error.to_string())),
        }
    })
    .catch_unwind();
    let ended = tokio::select! {
        biased;
        () = attempt.lost.cancelled() => return None,
        ended = running => ended,
        () = attempt.abort.cancelled() => return Some(failed(&ActivityFailure::new("WorkerShutdown", "the worker was shut down"))),
        () = past(limit) => return None, // the server has noticed by itself
        never = context.send_held_back() => match never {},
        () = grace(attempt, worker.config.cancellation_grace_period) => return Some(Outcome::Cancelled(v1::Cancelled {})),
    };
    Some(match ended {
        Ok(Ok(output)) => Outcome::Completed(payload::to_proto(&output)),
        Ok(Err(failure)) if attempt.cancel.is_cancelled() && is_cancellation(&failure) => Outcome::Cancelled(v1::Cancelled {}),
        Ok(Err(failure)) => {
            context.flush_heartbeat().await;
            failed(&failure)
        }
        Err(panic) => {
            context.flush_heartbeat().await;
            failed(&ActivityFailure::new(HANDLER_PANIC, panic_message(panic.as_ref())))
        }
    })
}

/// Code whose errors are texts has the text of `ActivityCancelled`.
fn is_cancellation(failure: &ActivityFailure) -> bool {
    failure.error_type == CANCELLED || failure.message == crate::activity::ActivityCancelled.to_string()
}

fn failed(it: &ActivityFailure) -> Outcome {
    let retry_after_ms = it.retry_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
    Outcome::Failed(v1::ActivityFailure { failure: Some(failure::to_proto(&it.to_core())), retry_after_ms })
}

/// How long the attempt may take: its own limit, and what is left of the activity's.
fn longest(task: &ActivityTask) -> Option<Duration> {
    [task.start_to_close_ms, task.schedule_to_close_left_ms].into_iter().filter(|millis| *millis > 0).min().map(Duration::from_millis)
}

/// Ready at the limit; never without one.
async fn past(limit: Option<Instant>) {
    match limit {
        Some(limit) => tokio::time::sleep_until(limit).await,
        None => std::future::pending().await,
    }
}

/// Ready when the attempt has not ended so long after it was asked to cancel.
async fn grace(attempt: &Attempt, longest: Duration) {
    attempt.cancel.cancelled().await;
    tokio::time::sleep(longest).await;
}

fn context(worker: &Arc<WorkerShared>, worker_id: &str, task: &ActivityTask, attempt: &Attempt) -> ActivityContext {
    let workflow = task.workflow.clone().unwrap_or_default();
    let heartbeat_details = payload::optional("heartbeat_details", task.heartbeat_details.clone()).unwrap_or_else(|error| {
        tracing::warn!(%error, "heartbeat details of an earlier attempt are left out");
        None
    });
    let (sink_worker, sink_id, sink_token, sink_attempt) = (worker.clone(), worker_id.to_owned(), task.task_token.clone(), attempt.clone());
    let always_recorded = task.heartbeat_timeout_ms > 0;
    let send_heartbeat = move |details: Option<Payload>| {
        if details.is_some() || always_recorded {
            sink_attempt.beat();
        }
        let request = HeartbeatRequest { task_token: sink_token.clone(), worker_id: sink_id.clone(), details: details.as_ref().map(payload::to_proto) };
        let (worker, lost) = (sink_worker.clone(), sink_attempt.lost.clone());
        Box::pin(async move { heartbeat(&worker, request, &lost).await }) as std::pin::Pin<Box<dyn Future<Output = HeartbeatAnswer> + Send>>
    };
    let heartbeat_interval = match task.heartbeat_timeout_ms {
        0 => HEARTBEAT_INTERVAL,
        millis => HEARTBEAT_INTERVAL.min(Duration::from_millis(millis) / 3),
    };
    ActivityContext::new(AttemptStart {
        info: ActivityInfo {
            namespace: workflow.namespace,
            execution_id: workflow.execution_id,
            workflow_id: workflow.workflow_id,
            workflow_type: workflow.workflow_type,
            activity_type: task.activity_type.clone(),
            activity_id: task.activity_id,
            attempt: task.attempt,
            max_attempts: task.max_attempts,
            task_queue: task.task_queue.clone(),
            is_local: false,
        },
        heartbeat_details,
        previous_failure: task.previous_failure.as_ref().map(|failure| format!("{}: {}", failure.error_type, failure.message)),
        longest: longest(task),
        heartbeat_interval,
        cancel: attempt.cancel.clone(),
        state: worker.registry.state.clone(),
        send_heartbeat: Arc::new(send_heartbeat),
    })
}

/// Tells the server about progress. A server that is away is no reason to stop: announcements decide about that.
async fn heartbeat(worker: &WorkerShared, request: HeartbeatRequest, lost: &tokio_util::sync::CancellationToken) -> HeartbeatAnswer {
    let call = |connection| {
        let request = request.clone();
        async move { WorkerServiceClient::new(connection).heartbeat(request).await }
    };
    match worker.channels.retry(Instant::now() + Duration::from_secs(2), None, call).await {
        Ok(reply) if reply.get_ref().cancel_requested => HeartbeatAnswer::CancelRequested,
        Ok(_) => HeartbeatAnswer::GoOn,
        Err(status) if is_stale(&status) => {
            lost.cancel();
            HeartbeatAnswer::Lost
        }
        Err(status) => {
            tracing::debug!(%status, "a heartbeat was not taken");
            HeartbeatAnswer::GoOn
        }
    }
}

/// Tells the server. `started` is when the attempt was recorded as started, if its result may bring a decision.
async fn report(worker: &Arc<WorkerShared>, worker_id: &str, task: &ActivityTask, outcome: Outcome, started: Option<ServerClock>, deadline: Instant) {
    let decided = match (&outcome, started) {
        (Outcome::Completed(output), Some(started)) => ahead::decide(worker, worker_id, task, started, output).await,
        (Outcome::Completed(_) | Outcome::Failed(_) | Outcome::Cancelled(_) | Outcome::Released(_), _) => None,
    };
    let (mut ahead, decision_ahead) = decided.unzip();
    let mut request = CloseActivityRequest { task_token: task.task_token.clone(), worker_id: worker_id.to_owned(), outcome: Some(outcome), decision_ahead };
    loop {
        let call = |connection| {
            let request = request.clone();
            async move { WorkerServiceClient::new(connection).max_decoding_message_size(MAX_MESSAGE_BYTES).close_activity(request).await }
        };
        let status = match worker.channels.retry(deadline, None, call).await {
            Ok(reply) => {
                if let Some(ahead) = ahead {
                    ahead.answered(reply.into_inner().decided, Instant::now());
                }
                return;
            }
            Err(status) => status,
        };
        let refused = matches!(status.code(), tonic::Code::InvalidArgument | tonic::Code::OutOfRange);
        if refused && ahead.take().is_some() {
            // It may be the decision that is refused, for example because both together are too large.
            request.decision_ahead = None;
            continue;
        }
        if refused && matches!(request.outcome, Some(Outcome::Completed(_))) {
            // A result that no server takes, for example too large a one: trying the activity again would not help.
            let message = format!("the result was refused: {}", status.message());
            request.outcome = Some(failed(&ActivityFailure::non_retryable("InvalidOutput", message)));
            continue;
        }
        tracing::debug!(%status, activity_type = task.activity_type, "the outcome of an attempt was not taken");
        return;
    }
}
