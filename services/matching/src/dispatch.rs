//! Carries matches out: takes each task from its owner and hands it to the worker's stream.

#[cfg(test)]
mod tests;

use crate::owner::Owners;
use crate::state::{Class, Item, Kind, Match, Offer, Offered, SessionId, SourceId, State};
use harvest_ids::{Namespace, TaskQueue, WorkerId};
use harvest_proto::internal::v1::take_task_reply::Task;
use harvest_proto::internal::v1::{CloseActivityCall, TakeTaskCall};
use harvest_proto::v1::{self, CloseActivityRequest, ServerMessage, close_activity_request, server_message};
use harvest_rpc::{Error, Reason};
use harvest_runtime::{Clock, crash, metrics};
use prost::Message as _;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

/// How long an owner may take to answer.
const TAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a task waits for a worker's stream that does not move.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause before a task that could not be taken is tried again; it doubles up to [`MAX_RETRY`].
const RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5);
/// How often gauges are set.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// What a worker's stream carries.
pub(crate) struct Carried {
    pub(crate) message: Result<ServerMessage, Status>,
    /// Its part of the bytes that may wait.
    room: Option<OwnedSemaphorePermit>,
    /// How it goes back to its owner's process if it does not reach its worker.
    back: Option<(String, CloseActivityCall)>,
}

impl Carried {
    /// The end of a stream.
    pub(crate) fn end(status: Status) -> Self {
        Self { message: Err(status), room: None, back: None }
    }

    /// What is sent. Its part of the bytes is free from now on.
    pub(crate) fn leave(self) -> Result<ServerMessage, Status> {
        drop(self.room);
        self.message
    }
}

/// The way into a worker's stream.
pub(crate) type Output = mpsc::Sender<Carried>;

/// How much there may be at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Offers of one source in one queue and kind.
    pub(crate) offers_per_queue: usize,
    /// Offers in all.
    pub(crate) max_offers: usize,
    /// Tasks being taken from their owners.
    pub(crate) max_takes: usize,
    /// Bytes of tasks that are taken and not on their way to a worker yet.
    pub(crate) max_task_bytes: usize,
    /// Worker sessions.
    pub(crate) max_sessions: usize,
}

/// The queues and everything that moves in them. Cheap to clone; all clones share it.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    outputs: Mutex<HashMap<SessionId, Output>>,
    /// Addresses of the history processes behind sources.
    addresses: Mutex<HashMap<SourceId, String>>,
    owners: Arc<dyn Owners>,
    clock: Arc<dyn Clock>,
    /// Bounds calls to owners in flight.
    takes: Semaphore,
    timer_changed: Notify,
    /// Once cancelled nothing new is matched.
    stopping: CancellationToken,
    in_flight: TaskTracker,
    max_sessions: usize,
    /// Bytes of tasks that are taken and not on their way to a worker yet.
    task_bytes: Arc<Semaphore>,
    max_task_bytes: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this lock")
}

impl Dispatcher {
    pub(crate) fn new(bounds: Bounds, owners: Arc<dyn Owners>, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            state: Mutex::new(State::new(bounds.offers_per_queue, bounds.max_offers)),
            outputs: Mutex::default(),
            addresses: Mutex::default(),
            owners,
            clock,
            takes: Semaphore::new(bounds.max_takes),
            timer_changed: Notify::new(),
            stopping: CancellationToken::new(),
            in_flight: TaskTracker::new(),
            max_sessions: bounds.max_sessions,
            task_bytes: Arc::new(Semaphore::new(bounds.max_task_bytes)),
            max_task_bytes: bounds.max_task_bytes,
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn add_source(&self, address: String) -> SourceId {
        let id = lock(&self.shared.state).add_source();
        lock(&self.shared.addresses).insert(id, address);
        id
    }

    pub(crate) fn remove_source(&self, id: SourceId) {
        lock(&self.shared.state).remove_source(id);
        lock(&self.shared.addresses).remove(&id);
    }

    /// Adds a session whose tasks go to `output`.
    pub(crate) fn add_session(&self, namespace: Namespace, worker_id: WorkerId, output: Output) -> Result<SessionId, Error> {
        let mut state = lock(&self.shared.state);
        if state.session_count() >= self.shared.max_sessions {
            metrics::OVERLOADED.add(1, ["max_sessions"]);
            let message = format!("this matching process has {} worker sessions (max_sessions)", state.session_count());
            return Err(Error::new(Reason::Overloaded, message).with("limit", "max_sessions"));
        }
        let id = state.add_session(namespace, worker_id);
        lock(&self.shared.outputs).insert(id, output);
        Ok(id)
    }

    pub(crate) fn remove_session(&self, id: SessionId) {
        lock(&self.shared.outputs).remove(&id);
        let matches = lock(&self.shared.state).remove_session(id);
        self.carry_out(matches);
    }

    pub(crate) fn drain(&self, id: SessionId) {
        lock(&self.shared.state).drain(id);
    }

    pub(crate) fn credit(&self, id: SessionId, task_queue: &TaskQueue, class: Class, count: u32) -> Result<(), Error> {
        let (accepted, matches) = lock(&self.shared.state).credit(id, task_queue, class, count);
        self.carry_out(matches);
        if accepted {
            Ok(())
        } else {
            Err(Error::new(Reason::LimitReached, format!("a session may give credit for at most {} queues and kinds", crate::state::MAX_CREDITED_QUEUES)))
        }
    }

    pub(crate) fn offer(&self, offer: Offer) {
        let kind = offer.key.item.kind();
        let (outcome, timer_is_first) = {
            let mut state = lock(&self.shared.state);
            let before = state.next_timer();
            let outcome = state.offer(self.shared.clock.monotonic(), offer);
            (outcome, state.next_timer() != before)
        };
        if timer_is_first {
            self.shared.timer_changed.notify_one();
        }
        match outcome {
            Offered::Taken(matches) => self.carry_out(matches),
            Offered::Dropped => metrics::QUEUE_DROPPED.add(1, [kind.as_str()]),
        }
    }

    /// Frees what has waited long enough and sets gauges, until `shutdown`.
    pub(crate) async fn run(&self, shutdown: CancellationToken) {
        let mut next_gauges = Duration::ZERO;
        loop {
            let now = self.shared.clock.monotonic();
            if now >= next_gauges {
                next_gauges = now + GAUGE_INTERVAL;
                self.show();
            }
            let (matches, next) = {
                let mut state = lock(&self.shared.state);
                (state.expire(now), state.next_timer())
            };
            self.carry_out(matches);
            let wait = next.map_or(next_gauges, |next| next.min(next_gauges)).saturating_sub(self.shared.clock.monotonic());
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.shared.timer_changed.notified() => {}
                () = self.shared.clock.sleep(wait) => {}
            }
        }
    }

    /// Matches nothing more and waits until what has been taken is with its worker, at most `timeout`.
    pub(crate) async fn stop(&self, timeout: Duration) {
        self.shared.stopping.cancel();
        self.shared.in_flight.close();
        tokio::select! {
            () = self.shared.in_flight.wait() => {}
            () = self.shared.clock.sleep(timeout) => tracing::warn!("tasks on their way to workers were given up"),
        }
    }

    fn show(&self) {
        let (depth, sessions) = {
            let state = lock(&self.shared.state);
            (state.depth(), state.session_count())
        };
        for (kind, count) in depth {
            metrics::QUEUE_DEPTH.set_count(u64::try_from(count).unwrap_or(u64::MAX), [kind.as_str()]);
        }
        metrics::QUEUE_SESSIONS.set_count(u64::try_from(sessions).unwrap_or(u64::MAX), []);
    }

    fn carry_out(&self, matches: Vec<Match>) {
        for found in matches {
            let dispatcher = self.clone();
            drop(harvest_runtime::spawn("take task", self.shared.in_flight.track_future(async move { dispatcher.take(found).await })));
        }
    }

    async fn take(&self, found: Match) {
        if self.shared.stopping.is_cancelled() {
            return;
        }
        let Some(address) = lock(&self.shared.addresses).get(&found.offer.source).cloned() else {
            self.give_back(&found);
            return;
        };
        // A task is taken only when its worker's stream has a place for it: until then it waits with its owner.
        let Some(place) = self.place(found.session).await else {
            tracing::debug!(worker = %found.worker_id, run = %found.offer.key.execution_id, "the worker has left, or its stream does not move");
            self.try_later(&found);
            self.give_back(&found);
            return;
        };
        let Ok(take) = self.shared.takes.acquire().await else { return };
        let call = take_call(&found);
        let answer = tokio::select! {
            answer = self.shared.owners.take_task(&address, call) => answer,
            () = self.shared.clock.sleep(TAKE_TIMEOUT) => Err(Error::new(Reason::DeadlineExceeded, "the owner does not answer")),
        };
        let kind = found.offer.key.item.kind();
        match answer.map(|reply| reply.task.and_then(message)) {
            Ok(Some(message)) => {
                crash::point("matching.taken");
                let waited = self.shared.clock.monotonic().saturating_sub(found.offer.arrived);
                self.hand_over(&found, &address, message, place).await;
                metrics::QUEUE_DISPATCHED.add(1, [kind.as_str()]);
                metrics::QUEUE_SCHEDULE_TO_START.record_duration(waited, [kind.as_str()]);
            }
            // Not pending any more.
            Ok(None) => {
                metrics::QUEUE_GONE.add(1, [kind.as_str()]);
                self.give_back(&found);
            }
            Err(error) => {
                tracing::debug!(%error, address, run = %found.offer.key.execution_id, "an offered task could not be taken");
                // The shard's new owner offers it by itself; whatever else it is, the offer stands until its process takes it back.
                if error.reason != Reason::ShardNotOwned {
                    self.try_later(&found);
                }
                self.give_back(&found);
            }
        }
        drop(take);
    }

    /// A place in a worker's stream; `None` when it has left, or does not take what is there already.
    async fn place(&self, session: SessionId) -> Option<OwnedPermit<Carried>> {
        let output = lock(&self.shared.outputs).get(&session).cloned()?;
        tokio::select! {
            place = output.reserve_owned() => place.ok(),
            () = self.shared.clock.sleep(SEND_TIMEOUT) => None,
        }
    }

    /// The offer stands, and is matched again after a while.
    fn try_later(&self, found: &Match) {
        let delay = RETRY.saturating_mul(1 << found.offer.failures.min(10)).min(MAX_RETRY);
        lock(&self.shared.state).retry(self.shared.clock.monotonic(), found.offer.clone(), delay);
        self.shared.timer_changed.notify_one();
    }

    async fn hand_over(&self, found: &Match, address: &str, message: ServerMessage, place: OwnedPermit<Carried>) {
        let token = match &message.message {
            Some(server_message::Message::ActivityTask(task)) => Some(task.task_token.clone()),
            _ => None,
        };
        let bytes = u32::try_from(message.encoded_len().min(self.shared.max_task_bytes)).unwrap_or(u32::MAX);
        let room = tokio::select! {
            room = self.shared.task_bytes.clone().acquire_many_owned(bytes) => room.ok(),
            () = self.shared.clock.sleep(SEND_TIMEOUT) => None,
        };
        let outcome = Some(close_activity_request::Outcome::Released(v1::Released {}));
        let release = |task_token| CloseActivityRequest { task_token, worker_id: found.worker_id.to_string(), outcome, decision_ahead: None };
        let call = token.map(|token| CloseActivityCall { shard_id: found.offer.shard_id.0, request: Some(release(token)) });
        let carried = Carried { message: Ok(message), room, back: call.map(|call| (address.to_owned(), call)) };
        let is_here = lock(&self.shared.outputs).get(&found.session).is_some_and(|output| !output.is_closed());
        if carried.room.is_some() && is_here {
            drop(place.send(carried));
        } else {
            drop(place);
            self.undelivered(carried).await;
        }
    }

    /// The worker left before its task reached it. A workflow task runs into its timeout; an attempt can be given back at once.
    pub(crate) async fn undelivered(&self, carried: Carried) {
        let Some((address, call)) = carried.back else { return };
        match self.shared.owners.release_activity(&address, call).await {
            Ok(()) => tracing::debug!("an attempt that did not reach its worker was given back"),
            Err(error) => tracing::debug!(%error, "an attempt could not be given back: it is lost when nobody announces it"),
        }
    }

    /// The credit was not used.
    fn give_back(&self, found: &Match) {
        let class = found.offer.key.item.kind().class();
        let (_, matches) = lock(&self.shared.state).credit(found.session, &found.offer.task_queue, class, 1);
        self.carry_out(matches);
    }
}

fn take_call(found: &Match) -> TakeTaskCall {
    let offer = &found.offer;
    let (activity_id, query_token) = match &offer.key.item {
        Item::Workflow => (0, bytes::Bytes::new()),
        Item::Activity(id) => (id.0, bytes::Bytes::new()),
        Item::Query(token) => (0, token.clone()),
    };
    TakeTaskCall {
        shard_id: offer.shard_id.0,
        epoch: offer.epoch.0,
        execution_id: bytes::Bytes::copy_from_slice(offer.key.execution_id.as_uuid().as_bytes()),
        activity_id,
        query_token,
        worker_id: found.worker_id.to_string(),
    }
}

/// `None` when the task is gone.
fn message(task: Task) -> Option<ServerMessage> {
    let message = match task {
        Task::WorkflowTask(task) => server_message::Message::WorkflowTask(task),
        Task::ActivityTask(task) => server_message::Message::ActivityTask(task),
        Task::QueryTask(task) => server_message::Message::QueryTask(task),
        Task::Gone(_) => return None,
    };
    Some(ServerMessage { message: Some(message) })
}

/// The kind on the wire.
pub(crate) fn kind(kind: harvest_proto::internal::v1::TaskKind) -> Option<Kind> {
    match kind {
        harvest_proto::internal::v1::TaskKind::Unspecified => None,
        harvest_proto::internal::v1::TaskKind::Workflow => Some(Kind::Workflow),
        harvest_proto::internal::v1::TaskKind::Activity => Some(Kind::Activity),
        harvest_proto::internal::v1::TaskKind::Query => Some(Kind::Query),
    }
}
