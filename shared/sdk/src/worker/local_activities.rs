//! Local activities: what workflow code wants done on the spot, within its workflow task.
//!
//! Nothing of them is recorded before the decision is. A worker that dies on the way leaves nothing behind, and the next one runs them again from their
//! first attempt. One that needs longer than a workflow task may take says that it is still at it.

use crate::activity::{ActivityContext, ActivityInfo, AttemptStart, HeartbeatAnswer};
use crate::error::{ActivityFailure, HANDLER_PANIC};
use crate::worker::workflow_tasks::{DEFAULT_TIMEOUT, MARGIN};
use crate::worker::{WorkerShared, runs};
use crate::workflow::recorded::fresh_random;
use crate::workflow::run::{Run, RunError, panic_message};
use futures::FutureExt as _;
use harvest_ids::{Attempt, DurationMs};
use harvest_proto::v1::worker_service_client::WorkerServiceClient;
use harvest_proto::v1::{HeartbeatRequest, WorkflowTask};
use harvest_sdk_replay::{Handle, LocalActivity, LocalEnd, LocalFailure};
use harvest_workflow_core::event::ActivityTimeout;
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::retry::RetryPolicy;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The longest delay that a failing attempt may ask for itself, as the server has it for other activities.
const RETRY_AFTER_CEILING: Duration = Duration::from_secs(15 * 60);
/// How long the server is told that the task is still being worked at, before that waits for the next time.
const TELL: Duration = Duration::from_secs(2);

/// Runs the local activities of a decision until its code wants no more. `deadline` of the task moves on while it takes longer.
pub(crate) async fn run_all(worker: &Arc<WorkerShared>, worker_id: &str, task: &WorkflowTask, mut run: Run, deadline: &mut Instant) -> Result<Run, RunError> {
    let timeout = if task.timeout_ms == 0 { DEFAULT_TIMEOUT } else { Duration::from_millis(task.timeout_ms) };
    let mut ended = JoinSet::new();
    let mut running: BTreeMap<Handle, AbortHandle> = BTreeMap::new();
    let mut tell_at = *deadline - timeout / 2;
    loop {
        let wanted = run.locals();
        if wanted.is_empty() {
            return Ok(run);
        }
        running.retain(|handle, task| {
            let kept = wanted.iter().any(|(wanted, _)| wanted == handle);
            if !kept {
                task.abort();
            }
            kept
        });
        for (handle, activity) in wanted {
            running.entry(handle).or_insert_with(|| {
                let context = Local { worker: worker.clone(), info: info(worker, task, handle, &activity) };
                ended.spawn(async move { (handle, context.attempts(activity).await) })
            });
        }
        tokio::select! {
            Some(joined) = ended.join_next() => match joined {
                Ok((handle, end)) => {
                    running.remove(&handle);
                    (run, ()) = runs::step(run, *deadline - MARGIN, move |run| run.end_local(handle, end)).await?;
                }
                Err(error) if error.is_cancelled() => {}
                Err(error) => return Err(RunError::Worker(format!("a local activity was lost: {error}"))),
            },
            () = tokio::time::sleep_until(tell_at) => {
                let told_at = Instant::now();
                tell(worker, worker_id, task).await?;
                *deadline = told_at + timeout;
                tell_at = told_at + timeout / 2;
            }
        }
    }
}

/// Says that the task is still being worked at.
async fn tell(worker: &WorkerShared, worker_id: &str, task: &WorkflowTask) -> Result<(), RunError> {
    let request = HeartbeatRequest { task_token: task.task_token.clone(), worker_id: worker_id.to_owned(), details: None };
    let call = |connection| {
        let request = request.clone();
        async move { WorkerServiceClient::new(connection).heartbeat(request).await }
    };
    let told = worker.channels.retry(Instant::now() + TELL, None, call).await;
    told.map(|_| ()).map_err(|status| RunError::Worker(format!("the workflow task is not this worker's any more: {status}")))
}

fn info(worker: &WorkerShared, task: &WorkflowTask, handle: Handle, activity: &LocalActivity) -> ActivityInfo {
    let workflow = task.workflow.clone().unwrap_or_default();
    ActivityInfo {
        namespace: worker.config.namespace.clone(),
        execution_id: workflow.execution_id,
        workflow_id: workflow.workflow_id,
        workflow_type: workflow.workflow_type,
        activity_type: activity.activity_type.to_string(),
        activity_id: handle.0,
        attempt: 1,
        max_attempts: activity.options.retry.as_ref().map_or(1, |policy| policy.max_attempts),
        task_queue: workflow.task_queue,
        is_local: true,
    }
}

/// One local activity.
struct Local {
    worker: Arc<WorkerShared>,
    info: ActivityInfo,
}

impl Local {
    /// Tries by its policy: once when it has none.
    async fn attempts(self, activity: LocalActivity) -> LocalEnd {
        let once = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
        let policy = activity.options.retry.clone().unwrap_or(once);
        let cap = self.worker.config.max_local_activity_start_to_close;
        let longest = activity.options.start_to_close.map_or(cap, |span: DurationMs| span.as_duration().min(cap));
        let (mut failures, mut attempt, mut waited) = (Vec::<LocalFailure>::new(), Attempt::FIRST, None);
        loop {
            let previous = failures.last().map(|failed| format!("{}: {}", failed.failure.error_type, failed.failure.message));
            let (failed, retry_after) = match self.attempt(&activity, attempt, longest, previous).await {
                Ok(output) => return LocalEnd { failures, output: Some(output) },
                Err(failed) => failed,
            };
            let listed = failed.failure.error_type != "Error" && policy.non_retryable_errors.contains(&failed.failure.error_type);
            let last = failed.failure.non_retryable || listed;
            failures.push(failed);
            let Some(delay) = policy.next_delay(attempt, waited, fresh_random()).filter(|_| !last) else { return LocalEnd { failures, output: None } };
            waited = Some(delay);
            tokio::time::sleep(retry_after.map_or(Duration::from_millis(delay), |asked: Duration| asked.min(RETRY_AFTER_CEILING))).await;
            attempt = attempt.next();
        }
    }

    async fn attempt(
        &self,
        activity: &LocalActivity,
        attempt: Attempt,
        longest: Duration,
        previous_failure: Option<String>,
    ) -> Result<Payload, (LocalFailure, Option<Duration>)> {
        let Some(registration) = self.worker.registry.activities.get(activity.activity_type.as_str()) else {
            let message = format!("activity type {:?} is not registered in this worker", activity.activity_type.as_str());
            return Err(failed(&ActivityFailure::non_retryable("ActivityNotRegistered", message)));
        };
        let beaten = Arc::new(AtomicBool::new(false));
        let beat = beaten.clone();
        let context = ActivityContext::new(AttemptStart {
            info: ActivityInfo { attempt: attempt.0, ..self.info.clone() },
            heartbeat_details: None,
            previous_failure,
            longest: Some(longest),
            heartbeat_interval: Duration::ZERO,
            cancel: CancellationToken::new(),
            state: self.worker.registry.state.clone(),
            send_heartbeat: Arc::new(move |_details| {
                beat.store(true, Ordering::Release);
                Box::pin(std::future::ready(HeartbeatAnswer::Lost))
            }),
        });
        let (start, input) = (registration.start.clone(), activity.input.clone());
        // Made inside the guarded future: the author's code may panic before its first await.
        let running = AssertUnwindSafe(async move {
            match start(context, &input) {
                Ok(running) => running.await,
                Err(error) => Err(ActivityFailure::non_retryable("InvalidInput", error.to_string())),
            }
        })
        .catch_unwind();
        let ended = tokio::time::timeout(longest, running).await;
        if beaten.load(Ordering::Acquire) {
            let message = "a local activity cannot send heartbeats: it runs within a workflow task, and is not picked up by another worker";
            return Err(failed(&ActivityFailure::non_retryable("LocalActivityHeartbeat", message)));
        }
        match ended {
            Ok(Ok(Ok(output))) => Ok(output),
            Ok(Ok(Err(failure))) => Err(failed(&failure)),
            Ok(Err(panic)) => Err(failed(&ActivityFailure::new(HANDLER_PANIC, panic_message(panic.as_ref())))),
            Err(_) => {
                let failure = Failure::engine("StartToClose", "the attempt took too long");
                Err((LocalFailure { failure, timeout: Some(ActivityTimeout::StartToClose) }, None))
            }
        }
    }
}

fn failed(it: &ActivityFailure) -> (LocalFailure, Option<Duration>) {
    (LocalFailure { failure: it.to_core(), timeout: None }, it.retry_after)
}
