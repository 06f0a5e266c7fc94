//! The context of an activity function.

use crate::error::{ActivityFailure, CANCELLED, HarvestError};
use crate::payload;
use crate::registry::StateMap;
use harvest_workflow_core::payload::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The attempt was asked to stop, or is not this worker's any more. Return it (`?`) and the activity ends as cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the activity was cancelled")]
pub struct ActivityCancelled;

impl From<ActivityCancelled> for ActivityFailure {
    fn from(cancelled: ActivityCancelled) -> Self {
        Self::new(CANCELLED, cancelled.to_string())
    }
}

impl From<ActivityCancelled> for String {
    fn from(cancelled: ActivityCancelled) -> Self {
        cancelled.to_string()
    }
}

/// What an attempt knows about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActivityInfo {
    /// The tenant.
    pub namespace: String,
    /// The run that it belongs to.
    pub execution_id: String,
    /// The business key of the run.
    pub workflow_id: String,
    /// The type of the run.
    pub workflow_type: String,
    /// The function.
    pub activity_type: String,
    /// The activity's number in its run.
    pub activity_id: u64,
    /// From 1.
    pub attempt: u32,
    /// Of how many.
    pub max_attempts: u32,
    /// The queue it came from; a local one's is that of its run.
    pub task_queue: String,
    /// It runs within a workflow task. Its number counts the things that the run's code has asked for then.
    pub is_local: bool,
}

/// What the server says to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatAnswer {
    GoOn,
    CancelRequested,
    /// The attempt is not this worker's any more.
    Lost,
}

type HeartbeatSink = dyn Fn(Option<Payload>) -> Pin<Box<dyn Future<Output = HeartbeatAnswer> + Send>> + Send + Sync;

/// What a new attempt starts with.
pub(crate) struct AttemptStart {
    pub(crate) info: ActivityInfo,
    pub(crate) heartbeat_details: Option<Payload>,
    pub(crate) previous_failure: Option<String>,
    /// How long it may take.
    pub(crate) longest: Option<Duration>,
    /// At most one heartbeat per this goes to the server.
    pub(crate) heartbeat_interval: Duration,
    pub(crate) cancel: CancellationToken,
    pub(crate) state: Arc<StateMap>,
    pub(crate) send_heartbeat: Arc<HeartbeatSink>,
}

struct Shared {
    start: AttemptStart,
    started: Instant,
    heartbeat: Mutex<HeartbeatState>,
}

#[derive(Default)]
struct HeartbeatState {
    sent: Option<Instant>,
    /// Reported by the code and not sent yet.
    pending: Option<Option<Payload>>,
}

/// What an activity function does its work with. Cheap to clone.
///
/// An activity runs at least once: an attempt whose worker dies is run again. Use [`ActivityContext::idempotency_key`] with outside systems.
#[derive(Clone)]
pub struct ActivityContext {
    shared: Arc<Shared>,
}

impl ActivityContext {
    pub(crate) fn new(start: AttemptStart) -> Self {
        Self { shared: Arc::new(Shared { start, started: Instant::now(), heartbeat: Mutex::new(HeartbeatState::default()) }) }
    }

    /// A context for unit tests of activity functions: attempt 1 of 1, heartbeats go nowhere.
    pub fn for_test() -> Self {
        Self::for_test_with_state(())
    }

    /// The same with a shared value for [`ActivityContext::state`].
    pub fn for_test_with_state<T: Send + Sync + 'static>(state: T) -> Self {
        let value: Arc<dyn Any + Send + Sync> = Arc::new(state);
        Self::new(AttemptStart {
            info: ActivityInfo {
                namespace: "default".to_owned(),
                execution_id: "00000000-0000-8000-8000-000000000000".to_owned(),
                workflow_id: "test".to_owned(),
                workflow_type: "test".to_owned(),
                activity_type: "test".to_owned(),
                activity_id: 1,
                attempt: 1,
                max_attempts: 1,
                task_queue: "default".to_owned(),
                is_local: false,
            },
            heartbeat_details: None,
            previous_failure: None,
            longest: None,
            heartbeat_interval: Duration::ZERO,
            cancel: CancellationToken::new(),
            state: Arc::new(StateMap::from([(TypeId::of::<T>(), value)])),
            send_heartbeat: Arc::new(|_details| Box::pin(std::future::ready(HeartbeatAnswer::GoOn))),
        })
    }

    /// Reports progress: `ctx.heartbeat(page).await?`. The details reach the next attempt, should this one fail
    /// ([`ActivityContext::heartbeat_details`]). Call it as often as you like: few calls go to the server, the newest details win.
    ///
    /// # Errors
    /// [`ActivityCancelled`] when the attempt should stop.
    pub async fn heartbeat(&self, details: impl Serialize + Send) -> Result<(), ActivityCancelled> {
        let details = match payload::to_payload("heartbeat details", &details) {
            Ok(details) => Some(details),
            Err(error) => {
                tracing::warn!(%error, "heartbeat details are left out");
                None
            }
        };
        let due = {
            let mut state = self.shared.heartbeat.lock().unwrap_or_else(PoisonError::into_inner);
            let due = state.sent.is_none_or(|sent| sent.elapsed() >= self.shared.start.heartbeat_interval);
            if due {
                state.sent = Some(Instant::now());
                state.pending = None;
            } else {
                state.pending = Some(details.clone());
            }
            due
        };
        if due {
            self.send(details).await;
        }
        self.check_cancelled()
    }

    async fn send(&self, details: Option<Payload>) {
        match (self.shared.start.send_heartbeat)(details).await {
            HeartbeatAnswer::GoOn => {}
            HeartbeatAnswer::CancelRequested | HeartbeatAnswer::Lost => self.shared.start.cancel.cancel(),
        }
    }

    /// Sends details that were reported since the last heartbeat that went out.
    pub(crate) async fn flush_heartbeat(&self) {
        let pending = {
            let mut state = self.shared.heartbeat.lock().unwrap_or_else(PoisonError::into_inner);
            if state.pending.is_some() {
                state.sent = Some(Instant::now());
            }
            state.pending.take()
        };
        if let Some(details) = pending {
            self.send(details).await;
        }
    }

    /// Sends details that were held back once the interval is over, so that code that falls silent has its newest ones remembered. Runs
    /// beside the code and never ends.
    pub(crate) async fn send_held_back(&self) -> Infallible {
        let interval = self.shared.start.heartbeat_interval.max(Duration::from_millis(100));
        loop {
            tokio::time::sleep(interval).await;
            self.flush_heartbeat().await;
        }
    }

    /// The details of the last heartbeat of an earlier attempt.
    ///
    /// # Errors
    /// [`HarvestError::Serialization`] when they have another shape.
    pub fn heartbeat_details<T: DeserializeOwned>(&self) -> Result<Option<T>, HarvestError> {
        self.shared.start.heartbeat_details.as_ref().map(|details| payload::from_payload("heartbeat details", details)).transpose()
    }

    /// Whether the attempt should stop.
    pub fn is_cancelled(&self) -> bool {
        self.shared.start.cancel.is_cancelled()
    }

    /// An error when the attempt should stop: `ctx.check_cancelled()?`.
    ///
    /// # Errors
    /// [`ActivityCancelled`].
    pub fn check_cancelled(&self) -> Result<(), ActivityCancelled> {
        if self.is_cancelled() { Err(ActivityCancelled) } else { Ok(()) }
    }

    /// Waits until the attempt should stop.
    pub async fn cancelled(&self) {
        self.shared.start.cancel.cancelled().await;
    }

    /// This attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.shared.start.info.attempt
    }

    /// The most attempts that there will be.
    pub fn max_attempts(&self) -> u32 {
        self.shared.start.info.max_attempts
    }

    /// Why the previous attempt failed, for people.
    pub fn previous_failure(&self) -> Option<&str> {
        self.shared.start.previous_failure.as_deref()
    }

    /// The same for every attempt of this activity, different for every other: for outside systems that drop repetitions.
    pub fn idempotency_key(&self) -> String {
        let info = &self.shared.start.info;
        let kind = if info.is_local { "local-" } else { "" };
        format!("{}:{kind}{}", info.execution_id, info.activity_id)
    }

    /// What the attempt knows about itself.
    pub fn info(&self) -> &ActivityInfo {
        &self.shared.start.info
    }

    /// A value that was given to [`HarvestBuilder::state`](crate::HarvestBuilder::state), by its type.
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.shared.start.state.get(&TypeId::of::<T>())?.clone().downcast().ok()
    }

    /// When the attempt runs out of time, if it has a limit (`start_to_close`, or what `schedule_to_close` leaves). After it the attempt is
    /// aborted.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.shared.started + self.shared.start.longest?)
    }

    /// How long until [`ActivityContext::deadline`]; zero when it has passed.
    pub fn time_remaining(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether less than `span` is left; false without a limit.
    pub fn is_expiring_within(&self, span: Duration) -> bool {
        self.time_remaining().is_some_and(|left| left < span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[tokio::test(start_paused = true)]
    async fn details_held_back_go_out_though_the_code_falls_silent() {
        let (sent, mut received) = mpsc::channel(8);
        let mut context = ActivityContext::for_test();
        let shared = Arc::get_mut(&mut context.shared).unwrap();
        shared.start.heartbeat_interval = Duration::from_secs(10);
        shared.start.send_heartbeat = Arc::new(move |details| {
            sent.try_send(details.map(|details| details.data)).unwrap();
            Box::pin(std::future::ready(HeartbeatAnswer::GoOn))
        });
        context.heartbeat(1).await.unwrap();
        context.heartbeat(2).await.unwrap();
        context.heartbeat(3).await.unwrap();
        assert_eq!(received.try_recv().unwrap().unwrap(), "1");
        let late = tokio::select! {
            never = context.send_held_back() => match never {},
            late = received.recv() => late,
        };
        assert_eq!(late.unwrap().unwrap(), "3");
    }
}
