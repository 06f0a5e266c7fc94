//! All sessions of this frontend, and their report to the config service.

use super::running::Running;
use crate::edge::Edge;
use bytes::Bytes;
use harvest_ids::{Namespace, Slot, TaskQueue, WorkerId, WorkflowType};
use harvest_proto::internal::v1::{RegisterWorkersCall, WorkerSession};
use harvest_proto::v1::Hello;
use harvest_rpc::Error;
use harvest_runtime::metrics;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Most sessions in one call to the config service.
const SESSIONS_PER_CALL: usize = 100;
/// How long a report may take.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Most ended sessions that are remembered for the next report; further ones run out by themselves there.
const MAX_ENDED: usize = 10_000;

/// All sessions of this frontend.
pub(crate) struct Sessions {
    process_id: String,
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<WorkerId, Open>,
    ended: Vec<WorkerId>,
    next_number: u64,
}

struct Open {
    hello: Hello,
    replaced: CancellationToken,
    number: u64,
    running: Arc<Running>,
}

/// One session's place among them; dropping it is the end of the session.
pub(super) struct Place {
    edge: Arc<Edge>,
    worker_id: WorkerId,
    number: u64,
    /// The worker has opened the session again, by another stream.
    pub(super) replaced: CancellationToken,
    /// What the worker is running.
    pub(super) running: Arc<Running>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.edge.sessions.close(&self.worker_id, self.number);
    }
}

impl Sessions {
    /// No session yet.
    pub(crate) fn new(process_id: String, most: usize) -> Self {
        Self { process_id, most, state: Mutex::default() }
    }

    /// Takes a session in. One of the same id is replaced: its stream is half open, or its worker would not have come again. One of another
    /// tenant is not: it goes on.
    pub(super) fn open(edge: &Arc<Edge>, worker_id: WorkerId, hello: Hello) -> Result<Place, Error> {
        let sessions = &edge.sessions;
        let mut state = sessions.state();
        if state.open.len() >= sessions.most && !state.open.contains_key(&worker_id) {
            let found = u64::try_from(state.open.len()).unwrap_or(u64::MAX);
            let message = format!("this frontend has {found} worker sessions (max_sessions)");
            return Err(Error::new(harvest_rpc::Reason::Overloaded, message).with("limit", "max_sessions"));
        }
        if let Some(open) = state.open.get(&worker_id).filter(|open| open.hello.namespace != hello.namespace) {
            tracing::warn!(%worker_id, of = open.hello.namespace, from = hello.namespace, "a session was to be resumed from another namespace");
            return Err(Error::invalid("resume_worker_id", format!("resume_worker_id is no session of namespace {:?}", hello.namespace)));
        }
        let number = state.next_number;
        state.next_number += 1;
        state.ended.retain(|ended| *ended != worker_id);
        let replaced = CancellationToken::new();
        // A worker that comes again runs what it ran before.
        let running = state.open.get(&worker_id).map(|before| before.running.clone()).unwrap_or_default();
        let before = state.open.insert(worker_id.clone(), Open { hello, replaced: replaced.clone(), number, running: running.clone() });
        if let Some(before) = before {
            before.replaced.cancel();
        }
        show(&state);
        Ok(Place { edge: edge.clone(), worker_id, number, replaced, running })
    }

    fn close(&self, worker_id: &WorkerId, number: u64) {
        let mut state = self.state();
        if state.open.get(worker_id).is_some_and(|open| open.number == number) {
            state.open.remove(worker_id);
            if state.ended.len() < MAX_ENDED {
                state.ended.push(worker_id.clone());
            }
            show(&state);
        }
    }

    /// Whether a worker's stream is here and the worker has told there that it runs such a workflow.
    pub(crate) fn serves(&self, worker_id: &WorkerId, namespace: &Namespace, queue: &TaskQueue, workflow_type: &WorkflowType) -> bool {
        self.state().open.get(worker_id).map(|open| &open.hello).is_some_and(|hello| {
            let has_code = hello.workflow_types.iter().any(|it| it.name == workflow_type.as_str());
            hello.namespace == namespace.as_str() && hello.task_queues.iter().any(|it| it == queue.as_str()) && has_code
        })
    }

    /// An activity task goes to a worker.
    pub(crate) fn handed(&self, worker_id: &WorkerId, task_token: &[u8]) {
        if let Some(running) = self.running_of(worker_id) {
            running.handed(task_token);
        }
    }

    /// An attempt is not its worker's any more: it was answered.
    pub(crate) fn ended(&self, worker_id: &WorkerId, task_token: &[u8]) {
        if let Some(running) = self.running_of(worker_id) {
            running.ended(task_token);
        }
    }

    /// Attempts of some slots that the workers are running, as far as this frontend knows.
    pub(crate) fn running(&self, slots: impl Fn(Slot) -> bool) -> Vec<(WorkerId, Vec<Bytes>)> {
        let sessions: Vec<_> = self.state().open.iter().map(|(id, open)| (id.clone(), open.running.clone())).collect();
        let running = sessions.into_iter().map(|(id, running)| (id, running.of(&slots)));
        running.filter(|(_, tokens)| !tokens.is_empty()).collect()
    }

    fn running_of(&self, worker_id: &WorkerId) -> Option<Arc<Running>> {
        self.state().open.get(worker_id).map(|open| open.running.clone())
    }

    /// Makes one session known at once, so that a worker that was welcomed can have its types started.
    pub(super) async fn report_one(edge: &Edge, worker_id: &WorkerId, hello: &Hello) {
        let session = WorkerSession { worker_id: worker_id.to_string(), hello: Some(hello.clone()) };
        if let Err(error) = edge.sessions.report(edge, vec![session], Vec::new()).await {
            tracing::warn!(%worker_id, %error, "a worker session could not be reported yet");
        }
    }

    /// Reports all sessions again and again until the shutdown.
    pub(crate) async fn run(edge: Arc<Edge>) {
        let mut failing = false;
        loop {
            tokio::select! {
                () = edge.shutdown.cancelled() => return,
                () = edge.clock.sleep(edge.options.report_interval) => {}
            }
            let reported = edge.sessions.report_all(&edge).await;
            match &reported {
                Err(error) if !failing => tracing::warn!(%error, "worker sessions cannot be reported"),
                Ok(()) if failing => tracing::info!("worker sessions can be reported again"),
                _ => {}
            }
            failing = reported.is_err();
        }
    }

    async fn report_all(&self, edge: &Edge) -> Result<(), Error> {
        let (sessions, mut ended) = {
            let mut state = self.state();
            let session = |(id, open): (&WorkerId, &Open)| WorkerSession { worker_id: id.to_string(), hello: Some(open.hello.clone()) };
            (state.open.iter().map(session).collect::<Vec<_>>(), std::mem::take(&mut state.ended))
        };
        let mut chunks: Vec<Vec<WorkerSession>> = sessions.chunks(SESSIONS_PER_CALL).map(<[_]>::to_vec).collect();
        if chunks.is_empty() && !ended.is_empty() {
            chunks.push(Vec::new());
        }
        for chunk in chunks {
            let told = std::mem::take(&mut ended);
            if let Err(error) = self.report(edge, chunk, told.iter().map(WorkerId::to_string).collect()).await {
                self.state().ended.extend(told);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn report(&self, edge: &Edge, sessions: Vec<WorkerSession>, ended_worker_ids: Vec<String>) -> Result<(), Error> {
        let call = RegisterWorkersCall { process_id: self.process_id.clone(), sessions, ended_worker_ids };
        let deadline = edge.deadline_in(REPORT_TIMEOUT);
        edge.configs.call(deadline, call, |mut client, call| async move { client.register_workers(call).await }).await.map(drop)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn show(state: &State) {
    metrics::WORKER_SESSIONS.set_count(u64::try_from(state.open.len()).unwrap_or(u64::MAX), []);
}
