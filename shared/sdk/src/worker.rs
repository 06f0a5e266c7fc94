//! The worker: takes tasks from a frontend, runs them, answers.
//!
//! `session` keeps one stream open and announces what is running; `credits` bounds how much is taken; `workflow_tasks`,
//! `activity_tasks` and `query_tasks` run one task each; `cache` keeps runs in memory between their tasks. `eager` asks for the activities
//! that a decision schedules, `ahead` decides about their results before the server has them, `eager_start` has a start in this process bring its
//! first workflow task: see `docs/reference/workers.md`.

mod activity_tasks;
mod ahead;
mod attempts;
mod builder;
mod cache;
mod config;
mod credits;
mod eager;
mod eager_start;
mod local_activities;
mod query_tasks;
mod runs;
mod session;
mod workflow_tasks;

pub(crate) use builder::register_workflows;
pub use builder::{BuildError, HarvestBuilder};
pub use config::WorkerConfig;
pub(crate) use eager_start::LocalWorker;

use crate::channels::{AddressError, Channels};
use crate::client::{Client, ClientError};
use crate::registry::Registry;
use attempts::Attempts;
use cache::RunCache;
use credits::{Credits, Keeps};
use eager_start::CurrentSession;
use harvest_rpc::Network;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a server is waited for that does not say whether tasks are still on their way.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// Why a worker ended on its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The addresses or the token are not usable.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The server does not want this worker: bad token, bad names. Trying again would not help.
    #[error("the server refused the worker: {0}")]
    Refused(Box<tonic::Status>),
}

/// What the parts of a running worker share.
pub(crate) struct WorkerShared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) config: WorkerConfig,
    pub(crate) channels: Channels,
    pub(crate) cache: Arc<RunCache>,
    pub(crate) credits: Arc<Credits>,
    pub(crate) attempts: Attempts,
    pub(crate) session: CurrentSession,
    /// Tasks that are being run.
    pub(crate) tasks: TaskTracker,
    pub(crate) draining: AtomicBool,
    /// True once a server has welcomed the worker.
    pub(crate) welcomed: watch::Sender<bool>,
    /// Whether a server may still send tasks: it has credit, or has not said that nothing is on its way any more.
    pub(crate) expecting: watch::Sender<bool>,
}

impl WorkerShared {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Ready when no task is being run, and none is on its way.
    async fn at_rest(&self) {
        let mut expecting = self.expecting.subscribe();
        let quiet = expecting.wait_for(|expecting| !expecting);
        if tokio::time::timeout(LAST_TASKS, quiet).await.is_err() {
            tracing::debug!("the server does not say whether tasks are on their way");
        }
        self.tasks.wait().await;
    }
}

/// Runs registered workflows and activities. Made by [`HarvestBuilder`].
pub struct Worker {
    registry: Arc<Registry>,
    config: WorkerConfig,
    network: Network,
    welcomed: watch::Sender<bool>,
    /// For the clients beside it, once there is one: the same connections, and itself.
    beside: OnceLock<(Channels, Arc<LocalWorker>)>,
}

impl Worker {
    pub(crate) fn new(registry: Arc<Registry>, config: WorkerConfig, network: Network) -> Self {
        Self { registry, config, network, welcomed: watch::channel(false).0, beside: OnceLock::new() }
    }

    /// Ready once a server has welcomed the running worker: from then on its workflow types can be started. Never ready when the worker
    /// is not run or ends before that.
    pub fn welcomed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut welcomed = self.welcomed.subscribe();
        async move {
            if welcomed.wait_for(|welcomed| *welcomed).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// A client of the same frontends and tenant for this process. A start by it of a workflow that the running worker has, on a queue that it serves,
    /// brings the run's first workflow task along: see [`WorkerConfig::with_eager_starts`]. Call it before the worker is run, within a tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn client(&self) -> Result<Client, ClientError> {
        let (channels, local) = match self.beside.get() {
            Some(beside) => beside,
            None => {
                let channels = Channels::new(&self.network, &self.config.addresses, self.config.token.as_deref())?;
                self.beside.get_or_init(|| (channels, Arc::default()))
            }
        };
        Ok(Client::beside(local.clone(), channels.clone(), self.config.namespace.clone()))
    }

    /// Serves until `shutdown` is ready, then takes no more tasks, gives back what it has not begun, and waits for what is running, at most
    /// [`WorkerConfig::with_shutdown_timeout`]; activities that still run then are aborted and go by their retry policy. Connections that
    /// fail are made again.
    ///
    /// # Errors
    /// [`WorkerError`] when the server refuses the worker from the start.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), WorkerError> {
        let (channels, local) = match self.beside.into_inner() {
            Some((channels, local)) => (channels, Some(local)),
            None => (Channels::new(&self.network, &self.config.addresses, self.config.token.as_deref())?, None),
        };
        // Only workflow code can schedule activities to ask for, and be started.
        let has_code = !self.registry.workflows.is_empty();
        let keeps = Keeps { workflows: local.is_some() && self.config.eager_starts && has_code, activities: self.config.eager_activities && has_code };
        let worker = Arc::new(WorkerShared {
            cache: Arc::new(RunCache::new(self.config.workflow_cache_size)),
            credits: Arc::new(Credits::new(&self.config, keeps)),
            attempts: Attempts::default(),
            session: CurrentSession::default(),
            tasks: TaskTracker::new(),
            draining: AtomicBool::new(false),
            welcomed: self.welcomed,
            expecting: watch::channel(false).0,
            registry: self.registry,
            config: self.config,
            channels,
        });
        if let Some(local) = local {
            local.runs(&worker);
        }
        let stop = CancellationToken::new();
        let drain = CancellationToken::new();
        let serving = session::serve(worker.clone(), drain.clone(), stop.clone());
        let drained = async {
            shutdown.await;
            worker.draining.store(true, Ordering::Release);
            drain.cancel();
            worker.tasks.close();
            if tokio::time::timeout(worker.config.shutdown_timeout, worker.at_rest()).await.is_err() {
                tracing::warn!(attempts = worker.attempts.count(), "tasks still run at the end of the shutdown timeout and are aborted");
                worker.attempts.abort_all();
                if tokio::time::timeout(activity_tasks::FAREWELL, worker.at_rest()).await.is_err() {
                    tracing::warn!("tasks do not end");
                }
            }
            stop.cancel();
        };
        let (served, ()) = tokio::join!(
            async {
                tokio::select! {
                    biased;
                    served = serving => served,
                    () = stop.cancelled() => Ok(()),
                }
            },
            async {
                tokio::select! {
                    biased;
                    () = drained => {}
                    () = stop.cancelled() => {} // the server refused the worker
                }
            }
        );
        served
    }
}
