//! A start in the worker's process: its reply can bring the run's first workflow task, without matching and without a message of its own.

use crate::channels::{Channels, Connection, MAX_MESSAGE_BYTES, TRY_TIMEOUT};
use crate::worker::credits::{Place, TaskKind};
use crate::worker::{WorkerShared, workflow_tasks};
use harvest_ids::TaskQueue;
use harvest_proto::v1::workflow_service_client::WorkflowServiceClient;
use harvest_proto::v1::{StartWorkflowRequest, StartWorkflowResponse, WorkflowTask};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use tokio::time::Instant;
use tonic::{Response, Status};

/// The worker that a client is in one process with, from when it runs.
#[derive(Default)]
pub(crate) struct LocalWorker(OnceLock<Weak<WorkerShared>>);

impl LocalWorker {
    /// The worker runs.
    pub(crate) fn runs(&self, worker: &Arc<WorkerShared>) {
        // A worker runs once.
        self.0.get_or_init(|| Arc::downgrade(worker));
    }

    /// What a start may ask for: the worker takes tasks, has the code, serves the queue and keeps a place for it.
    pub(crate) fn ask(&self, namespace: &str, workflow_type: &str, task_queue: &str) -> Option<Asked> {
        let worker = self.0.get()?.upgrade()?;
        let config = &worker.config;
        if !config.eager_starts || worker.is_draining() || config.namespace != namespace || !worker.registry.workflows.contains_key(workflow_type) {
            return None;
        }
        let session = worker.session.current()?;
        let default = TaskQueue::default();
        let place = worker.credits.reserve(if task_queue.is_empty() { default.as_str() } else { task_queue }, TaskKind::Workflow)?;
        Some(Asked { worker, session, place: Mutex::new(Some(place)) })
    }
}

/// An open session, and the frontend that has its stream: no other knows of it.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) worker_id: String,
    /// The connection to the frontend, with its number.
    pub(crate) frontend: (usize, Connection),
}

/// The worker's session, while it is open.
#[derive(Default)]
pub(crate) struct CurrentSession(Mutex<Option<Session>>);

impl CurrentSession {
    /// A session is open until the guard is dropped.
    pub(crate) fn open(&self, session: Session) -> Closing<'_> {
        self.set(Some(session));
        Closing(self)
    }

    fn current(&self) -> Option<Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, session: Option<Session>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }
}

/// The end of a session, when dropped.
pub(crate) struct Closing<'a>(&'a CurrentSession);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// A start that asks for its first workflow task, with the place for it.
pub(crate) struct Asked {
    worker: Arc<WorkerShared>,
    session: Session,
    place: Mutex<Option<Place>>,
}

impl Asked {
    /// Starts a run. The first try goes to the frontend that has the worker's stream.
    pub(crate) async fn start(self, channels: &Channels, deadline: Instant, mut request: StartWorkflowRequest) -> Result<StartWorkflowResponse, Status> {
        request.eager_worker_id.clone_from(&self.session.worker_id);
        let (first, asked) = (self.session.frontend.clone(), Arc::new(self));
        let attempt = |connection| asked.clone().attempt(connection, request.clone());
        Ok(channels.retry_from(Some(first), deadline, None, attempt).await?.into_inner())
    }

    /// One try. It goes on when the caller gives up or the worker drains, for its answer may bring a task that would wait for its timeout otherwise.
    async fn attempt(self: Arc<Self>, connection: Connection, request: StartWorkflowRequest) -> Result<Response<StartWorkflowResponse>, Status> {
        let tasks = self.worker.tasks.clone();
        let attempt = tasks.spawn(async move {
            let mut service = WorkflowServiceClient::new(connection).max_decoding_message_size(MAX_MESSAGE_BYTES);
            let answer = tokio::time::timeout(TRY_TIMEOUT, service.start_workflow(request)).await;
            let mut answer = answer.map_err(|_| Status::deadline_exceeded("no answer in time"))??;
            if let Some(task) = answer.get_mut().eager_workflow_task.take() {
                self.run(task);
            }
            Ok(answer)
        });
        attempt.await.unwrap_or_else(|error| Err(Status::unavailable(error.to_string())))
    }

    /// Runs the task in the place that was kept for it; once, though the answers of several tries bring it.
    fn run(&self, task: WorkflowTask) {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(place) = place {
            workflow_tasks::spawn(&self.worker, &self.session.worker_id, task, place);
        }
    }
}
