//! What a case works with: a tenant of its own on a fleet, a client, workers in the test process.

use crate::audit;
use crate::eventually::eventually;
use crate::fleet::Fleet;
use crate::http::Api;
use crate::observer::{Call, Observer, ObserverClient};
use crate::store::Stores;
use anyhow::Context as _;
use harvest_sdk::{
    ActivityRegistration, Client, ClientError, HarvestBuilder, StartOptions, Worker, WorkerConfig, WorkerError, WorkflowDefinition, WorkflowHandle,
    WorkflowRegistration,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the fleet may take to know a new worker's types.
const REGISTRATION: Duration = Duration::from_secs(60);
/// How long anything of a case may take that is quick by itself.
pub const SOON: Duration = Duration::from_secs(60);

/// A tenant on a fleet.
pub struct World {
    fleet: Arc<Fleet>,
    namespace: String,
    client: Client,
    api: Api,
    /// What the workers of this tenant run, for the replay check.
    code: Mutex<Vec<WorkflowRegistration>>,
    workers: Mutex<Vec<RunningWorker>>,
}

/// A worker in the test process. Dropped: its tasks are aborted, as in a crash.
pub struct RunningWorker {
    stop: CancellationToken,
    task: harvest_runtime::OwnedTask<Result<(), WorkerError>>,
}

impl RunningWorker {
    fn start(worker: Worker) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = harvest_runtime::spawn_owned("test worker", async move { worker.run(async move { stopped.cancelled().await }).await });
        Self { stop, task }
    }

    /// Lets it drain and waits for its end.
    ///
    /// # Errors
    /// When it does not end within its shutdown timeout and a bit, or ended with an error.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(40), self.task).await.context("the worker does not drain")???;
        Ok(())
    }
}

impl World {
    /// A tenant of this name.
    ///
    /// # Errors
    /// When the fleet has no frontend.
    pub fn new(fleet: &Arc<Fleet>, namespace: &str) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            client: fleet.client(namespace)?,
            api: fleet.api(namespace)?,
            fleet: fleet.clone(),
            namespace: namespace.to_owned(),
            code: Mutex::default(),
            workers: Mutex::default(),
        }))
    }

    /// The fleet.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The tenant.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A client of this tenant.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The HTTP API for this tenant.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// A plain gRPC connection to a frontend, for calls that the SDK would not make.
    ///
    /// # Errors
    /// When it does not connect.
    pub async fn channel(&self) -> anyhow::Result<tonic::transport::Channel> {
        let address = self.fleet.frontends().into_iter().next().context("a fleet without a frontend")?;
        Ok(tonic::transport::Endpoint::from_shared(address)?.connect().await?)
    }

    /// The names of the event variants of a run, in order.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn variants<R>(&self, handle: &WorkflowHandle<R>) -> anyhow::Result<Vec<String>> {
        Ok(crate::histories::variants(&handle.history().await?))
    }

    /// The world outside.
    pub fn observer(&self) -> &Observer {
        self.fleet.observer()
    }

    /// What the observer has of one run.
    pub fn calls_of(&self, workflow_id: &str) -> Vec<Call> {
        self.observer().calls_of(&self.namespace, workflow_id)
    }

    /// Waits until the observer has at least `count` calls of one run.
    ///
    /// # Errors
    /// When it has not soon.
    pub async fn wait_for_calls(&self, workflow_id: &str, count: usize) -> anyhow::Result<Vec<Call>> {
        self.observer().wait_for_calls(&self.namespace, workflow_id, count, SOON).await
    }

    /// Starts a worker on the queue `default` that lives as long as the case.
    ///
    /// # Errors
    /// When the registrations do not go together.
    pub fn serve(&self, workflows: Vec<WorkflowRegistration>, activities: Vec<ActivityRegistration>) -> anyhow::Result<()> {
        let worker = self.worker(WorkerConfig::default(), workflows, activities)?;
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        Ok(())
    }

    /// Starts a worker with other settings, which the caller keeps.
    ///
    /// # Errors
    /// When the registrations do not go together.
    pub fn worker(&self, config: WorkerConfig, workflows: Vec<WorkflowRegistration>, activities: Vec<ActivityRegistration>) -> anyhow::Result<RunningWorker> {
        Ok(RunningWorker::start(self.build(config, workflows, activities)?))
    }

    /// The same with the worker's own client, when its workflows can be started.
    ///
    /// # Errors
    /// When the registrations do not go together, or the worker is not welcomed soon.
    pub async fn worker_with_client(&self, config: WorkerConfig, workflows: Vec<WorkflowRegistration>) -> anyhow::Result<(RunningWorker, Client)> {
        let worker = self.build(config, workflows, Vec::new())?;
        let (client, welcomed) = (worker.client()?, worker.welcomed());
        let running = RunningWorker::start(worker);
        tokio::time::timeout(REGISTRATION, welcomed).await.context("the worker is not welcomed")?;
        Ok((running, client))
    }

    fn build(&self, config: WorkerConfig, workflows: Vec<WorkflowRegistration>, activities: Vec<ActivityRegistration>) -> anyhow::Result<Worker> {
        self.remember(&workflows);
        let builder = HarvestBuilder::new().workflows(workflows).activities(activities).state(ObserverClient::new(self.observer().url()));
        Ok(builder.worker(config.with_addresses(self.fleet.frontends()).with_namespace(&self.namespace)).build()?)
    }

    /// Adds code to the replay check; a later registration of a name replaces an earlier one.
    pub fn remember(&self, workflows: &[WorkflowRegistration]) {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        code.retain(|known| !workflows.iter().any(|workflow| workflow.name() == known.name()));
        code.extend(workflows.iter().cloned());
    }

    /// Takes a workflow out of the replay check: its histories do not end as its code says.
    pub fn forget(&self, workflow_type: &str) {
        self.code.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| known.name() != workflow_type);
    }

    /// Makes the fleet know types that nobody serves afterwards.
    ///
    /// # Errors
    /// When they are not known soon, or the worker does not drain.
    pub async fn teach(&self, workflows: Vec<WorkflowRegistration>) -> anyhow::Result<()> {
        let identity = format!("teacher of {}", self.namespace);
        let worker = self.worker(WorkerConfig::default().with_identity(&identity).with_queues(["school"]), workflows, Vec::new())?;
        eventually("the teaching worker is listed", REGISTRATION, || async {
            let shown = self.api.get("/workers").await?;
            let workers = shown.body["workers"].as_array().cloned().unwrap_or_default();
            Ok(workers.iter().any(|worker| worker["identity"] == identity.as_str()).then_some(()))
        })
        .await?;
        worker.stop().await
    }

    /// Business keys of the runs that a filter of the HTTP list finds, newest first.
    ///
    /// # Errors
    /// When the list is refused.
    pub async fn list(&self, filter: &str) -> anyhow::Result<Vec<String>> {
        let page = self.api.get(&format!("/workflows?{filter}")).await?;
        anyhow::ensure!(page.status.is_success(), "{page:?}");
        let runs = page.body["workflows"].as_array().cloned().unwrap_or_default();
        Ok(runs.iter().filter_map(|run| run["workflow_id"].as_str().map(str::to_owned)).collect())
    }

    /// Starts a run, waiting until the fleet knows its type.
    ///
    /// # Errors
    /// [`ClientError`], or when the type stays unknown.
    pub async fn start<W>(&self, workflow: &(impl Fn() -> W + Sync), workflow_id: &str, input: W::Input) -> anyhow::Result<WorkflowHandle<W::Output>>
    where
        W: WorkflowDefinition<Input: Clone + Sync>,
    {
        self.start_with(workflow, StartOptions::new(workflow_id), input).await
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`ClientError`], or when the type stays unknown.
    pub async fn start_with<W>(&self, workflow: &(impl Fn() -> W + Sync), options: StartOptions, input: W::Input) -> anyhow::Result<WorkflowHandle<W::Output>>
    where
        W: WorkflowDefinition<Input: Clone + Sync>,
    {
        self.start_within(REGISTRATION, workflow, options, input).await
    }

    /// The same for a fleet whose store may be away for a while.
    ///
    /// # Errors
    /// [`ClientError`], or when the type stays unknown.
    pub async fn start_within<W>(
        &self,
        longest: Duration,
        workflow: &(impl Fn() -> W + Sync),
        options: StartOptions,
        input: W::Input,
    ) -> anyhow::Result<WorkflowHandle<W::Output>>
    where
        W: WorkflowDefinition<Input: Clone + Sync>,
    {
        let started = eventually(format!("the fleet knows {}", W::NAME), longest, || async {
            match self.client.start(workflow, options.clone(), input.clone()).await {
                Err(ClientError::NotFound(message)) => anyhow::bail!("{message}"),
                other => Ok(Some(other)),
            }
        });
        Ok(started.await??)
    }

    /// Waits until a run is in a state.
    ///
    /// # Errors
    /// When it is not soon.
    pub async fn wait_for_state<R>(&self, handle: &WorkflowHandle<R>, state: &str) -> anyhow::Result<harvest_proto::v1::WorkflowInfo> {
        eventually(format!("{} is {state}", handle.workflow_id()), SOON, || async {
            let info = handle.describe().await?;
            anyhow::ensure!(info.state == state, "it is {}", info.state);
            Ok(Some(info))
        })
        .await
    }

    /// Waits for a result, with a deadline.
    ///
    /// # Errors
    /// The run's own ending, or when there is none soon.
    pub async fn result<R: serde::de::DeserializeOwned>(&self, handle: &WorkflowHandle<R>) -> anyhow::Result<R> {
        match tokio::time::timeout(SOON, handle.result()).await {
            Ok(result) => Ok(result?),
            Err(_) => anyhow::bail!("{} has no result within {SOON:?}: {}", handle.workflow_id(), last_events(handle).await),
        }
    }

    /// Waits for an ending that is not a result.
    ///
    /// # Errors
    /// When there is a result, or no ending soon.
    pub async fn failure<R: serde::de::DeserializeOwned>(&self, handle: &WorkflowHandle<R>) -> anyhow::Result<harvest_sdk::WorkflowOutcomeError> {
        match tokio::time::timeout(SOON, handle.result()).await.with_context(|| format!("{} has no ending", handle.workflow_id()))? {
            Ok(_) => anyhow::bail!("{} has a result", handle.workflow_id()),
            Err(failure) => Ok(failure),
        }
    }

    /// Ends the case's workers in order.
    ///
    /// # Errors
    /// When one does not drain.
    pub async fn stop_workers(&self) -> anyhow::Result<()> {
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            worker.stop().await?;
        }
        Ok(())
    }

    /// Reads every run of the tenant from the store and holds it against the oracle and, as far as known, the code.
    ///
    /// # Errors
    /// The first violation.
    pub async fn audit(&self, stores: &Stores) -> anyhow::Result<Vec<audit::RunLog>> {
        let logs = audit::logs(stores, &self.namespace).await?;
        audit::check(&logs)?;
        let code = self.code.lock().unwrap_or_else(PoisonError::into_inner).clone();
        audit::replay(&logs, &code)?;
        Ok(logs)
    }
}

/// The end of a history, for the message about a run that hangs.
pub async fn last_events<R>(handle: &WorkflowHandle<R>) -> String {
    match tokio::time::timeout(Duration::from_secs(5), handle.history()).await {
        Ok(Ok(events)) => {
            let last = events.iter().rev().take(5).map(|event| format!("\n  {event:?}")).collect::<String>();
            format!("its history has {} events, the last ones, newest first:{last}", events.len())
        }
        Ok(Err(error)) => format!("its history cannot be read: {error}"),
        Err(_) => "its history cannot be read in time".to_owned(),
    }
}
