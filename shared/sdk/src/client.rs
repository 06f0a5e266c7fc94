//! The client: starts runs and talks to them.

mod error;
mod handle;
mod options;

pub use error::{ClientError, WorkflowOutcomeError};
pub use handle::WorkflowHandle;
pub use options::{ConflictPolicy, StartOptions};

use crate::channels::{Channels, Connection, MAX_MESSAGE_BYTES};
use crate::definition::WorkflowDefinition;
use crate::options::span;
use crate::payload;
use crate::worker::LocalWorker;
use harvest_proto::v1::workflow_service_client::WorkflowServiceClient;
use harvest_proto::v1::{StartWorkflowRequest, WorkflowRef};
use harvest_rpc::Network;
use harvest_wire::payload as wire_payload;
use harvest_workflow_core::payload::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Response, Status};
use uuid::Uuid;

/// How long a call is tried again when a frontend does not answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a fleet: of any program by [`Client::connect`], of a worker's own program by [`Worker::client`](crate::Worker::client). Cheap to clone. Every mutating call carries a request id of its own that is the same on all its tries, so that a
/// call that is repeated because its answer was lost takes effect once.
#[derive(Clone)]
pub struct Client {
    channels: Channels,
    namespace: String,
    patience: Duration,
    local_worker: Option<Arc<LocalWorker>>,
}

pub(crate) type Service = WorkflowServiceClient<Connection>;

impl Client {
    /// A client of these frontends, e.g. `["http://127.0.0.1:7233"]`. Connects on first use; call it within a tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn connect<S: Into<String>>(addresses: impl IntoIterator<Item = S>) -> Result<Self, ClientError> {
        Self::connect_with_token(addresses, None)
    }

    /// The same with a bearer token.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn connect_with_token<S: Into<String>>(addresses: impl IntoIterator<Item = S>, token: Option<&str>) -> Result<Self, ClientError> {
        Self::connect_over(&Network::tcp(), addresses, token)
    }

    /// The same over another network than TCP: a fleet in this process, or a simulated one.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn connect_over<S: Into<String>>(network: &Network, addresses: impl IntoIterator<Item = S>, token: Option<&str>) -> Result<Self, ClientError> {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        Ok(Self { channels: Channels::new(network, &addresses, token)?, namespace: "default".to_owned(), patience: PATIENCE, local_worker: None })
    }

    /// A client in the process of a worker.
    pub(crate) fn beside(worker: Arc<LocalWorker>, channels: Channels, namespace: String) -> Self {
        Self { channels, namespace, patience: PATIENCE, local_worker: Some(worker) }
    }

    /// The same client for another tenant.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets how long a call is tried again when no frontend answers; default 30 s.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts a run, or finds the open one of the same type and business key:
    /// `client.start(&order, StartOptions::new("order-17"), input).await?`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn start<W: WorkflowDefinition>(
        &self,
        _workflow: &impl Fn() -> W,
        mut options: StartOptions,
        input: W::Input,
    ) -> Result<WorkflowHandle<W::Output>, ClientError> {
        options.execution_timeout = options.execution_timeout.or_else(W::execution_timeout);
        self.start_payload(W::NAME, options, &payload::to_payload("workflow input", &input)?).await
    }

    /// Starts a run by the name of its type, with any JSON.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn start_raw<T: DeserializeOwned>(
        &self,
        workflow_type: &str,
        options: StartOptions,
        input: impl Serialize,
    ) -> Result<WorkflowHandle<T>, ClientError> {
        self.start_payload(workflow_type, options, &payload::to_payload("workflow input", &input)?).await
    }

    async fn start_payload<T>(&self, workflow_type: &str, options: StartOptions, input: &Payload) -> Result<WorkflowHandle<T>, ClientError> {
        let millis = |field: &str, value: Option<Duration>| span(field, value).map(|value| value.map(|value| value.as_millis()));
        let request = StartWorkflowRequest {
            namespace: self.namespace.clone(),
            workflow_type: workflow_type.to_owned(),
            workflow_id: options.workflow_id,
            input: Some(wire_payload::to_proto(input)),
            task_queue: options.task_queue.unwrap_or_default(),
            request_id: options.request_id.unwrap_or_else(new_request_id),
            execution_timeout_ms: millis("execution_timeout", options.execution_timeout)?,
            conflict_policy: options.conflict_policy.to_proto().into(),
            workflow_task_timeout_ms: millis("workflow_task_timeout", options.workflow_task_timeout)?,
            eager_worker_id: String::new(),
            sla_ms: millis("sla", options.sla)?,
        };
        let asked = self.local_worker.as_ref().and_then(|worker| worker.ask(&self.namespace, workflow_type, &request.task_queue));
        let started = match asked {
            Some(asked) => asked.start(&self.channels, Instant::now() + self.patience, request).await?,
            None => self.call(request, |mut service, request| async move { service.start_workflow(request).await }).await?,
        };
        let reference = WorkflowRef { namespace: self.namespace.clone(), execution_id: started.execution_id, ..WorkflowRef::default() };
        Ok(WorkflowHandle::new(self.clone(), reference, started.workflow_id, started.started_fresh))
    }

    /// A handle of the run of this type and business key: the open one, else the newest.
    pub fn handle<W: WorkflowDefinition>(&self, _workflow: &impl Fn() -> W, workflow_id: &str) -> WorkflowHandle<W::Output> {
        self.handle_raw(W::NAME, workflow_id)
    }

    /// The same by the name of the type.
    pub fn handle_raw<T>(&self, workflow_type: &str, workflow_id: &str) -> WorkflowHandle<T> {
        let reference = WorkflowRef {
            namespace: self.namespace.clone(),
            workflow_type: workflow_type.to_owned(),
            workflow_id: workflow_id.to_owned(),
            execution_id: String::new(),
        };
        WorkflowHandle::new(self.clone(), reference, workflow_id.to_owned(), false)
    }

    /// A handle of one run.
    pub fn handle_of_execution<T>(&self, execution_id: &str) -> WorkflowHandle<T> {
        let reference = WorkflowRef { namespace: self.namespace.clone(), execution_id: execution_id.to_owned(), ..WorkflowRef::default() };
        WorkflowHandle::new(self.clone(), reference, String::new(), false)
    }

    /// One call, tried again while no frontend answers.
    pub(crate) async fn call<Q: Clone, T, F>(&self, request: Q, call: impl Fn(Service, Q) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_for(self.patience, None, request, call).await
    }

    /// The same with other times: for all tries and for one.
    pub(crate) async fn call_for<Q: Clone, T, F>(
        &self,
        patience: Duration,
        one_try: Option<Duration>,
        request: Q,
        call: impl Fn(Service, Q) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let attempt = |connection| call(Service::new(connection).max_decoding_message_size(MAX_MESSAGE_BYTES), request.clone());
        let reply = self.channels.retry(Instant::now() + patience, one_try, attempt).await?;
        Ok(reply.into_inner())
    }
}

/// A new id for one mutating call.
pub(crate) fn new_request_id() -> String {
    Uuid::new_v4().to_string()
}
