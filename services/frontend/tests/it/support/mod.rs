//! A frontend with a fake fleet around it.

pub mod config;
pub mod directory;
pub mod history;
pub mod matching;
pub mod runs;

use config::FakeConfig;
use directory::FakeDirectory;
use harvest_fleet_config::LocalBus;
use harvest_frontend::{Config, Deps, build};
use harvest_persistence::control::ServiceKind;
use harvest_proto::v1;
use harvest_rpc::{Error, Network, Server};
use harvest_runtime::{Health, OwnedTask, SystemClock, SystemIds};
use history::FakeHistory;
use matching::FakeMatching;
use runs::FakeRuns;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Shards of the fake fleet.
pub const SHARDS: u32 = 4;

/// The frontend with everything around it; ends when dropped.
pub struct Fleet {
    pub directory: Arc<FakeDirectory>,
    pub history: FakeHistory,
    pub config: FakeConfig,
    pub matching: FakeMatching,
    pub runs: Arc<FakeRuns>,
    pub health: Health,
    pub http: String,
    pub channel: Channel,
    pub shutdown: CancellationToken,
    pub running: OwnedTask<()>,
    _servers: Vec<OwnedTask<()>>,
}

/// Serves a fake until the task is dropped; returns its address.
pub fn serve(server: Server) -> (String, OwnedTask<()>) {
    let address = format!("http://{}", server.address());
    let serving = harvest_runtime::spawn_owned("fake", async move { server.serve(CancellationToken::new()).await.unwrap() });
    (address, serving)
}

pub async fn bind() -> Server {
    Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

impl Fleet {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts with more keys of the configuration.
    pub async fn start_with(more: &[(&str, &str)]) -> Self {
        let directory = Arc::new(FakeDirectory::default());
        let (history, config, matching) = (FakeHistory::default(), FakeConfig::default(), FakeMatching::default());
        let mut servers = Vec::new();
        let (address, task) = serve(bind().await.add_service(history.service()));
        servers.push(task);
        directory.add(ServiceKind::History, "history-1", &address);
        (0..SHARDS).for_each(|shard| directory.own(shard, "history-1", &address));
        let (address, task) = serve(bind().await.add_service(config.service()));
        servers.push(task);
        directory.add(ServiceKind::Config, "config-1", &address);
        let (address, task) = serve(bind().await.add_service(matching.service()));
        servers.push(task);
        directory.add(ServiceKind::Matching, "matching-1", &address);

        let variables =
            [("GRPC_LISTEN", "127.0.0.1:0"), ("HTTP_LISTEN", "127.0.0.1:0"), ("DATABASE_URL", "postgres://unused"), ("WORKERS__REPORT_INTERVAL_MS", "100")];
        let variables = variables.iter().chain(more).map(|(name, value)| (format!("HARVEST_{name}"), (*value).to_owned()));
        let settings = harvest_runtime::config::load::<Config>(None, variables).unwrap().settings;
        let (clock, health, runs) = (Arc::new(SystemClock::new()), Health::new(), Arc::new(FakeRuns::default()));
        let deps = Deps {
            store: runs.clone(),
            directory: directory.clone(),
            bus: Arc::new(LocalBus::default()),
            network: Network::tcp(),
            clock,
            ids: Arc::new(SystemIds),
            health: health.clone(),
        };
        let frontend = build(&settings, deps).await.unwrap();
        let http = format!("http://{}/api/harvest", frontend.http_address());
        let channel = Channel::from_shared(frontend.address().to_owned()).unwrap().connect_lazy();
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let running = harvest_runtime::spawn_owned("frontend", async move { frontend.run(stop).await.unwrap() });
        Self { directory, history, config, matching, runs, health, http, channel, shutdown, running, _servers: servers }
    }

    pub fn workflows(&self) -> v1::workflow_service_client::WorkflowServiceClient<Channel> {
        v1::workflow_service_client::WorkflowServiceClient::new(self.channel.clone())
    }

    pub fn workers(&self) -> v1::worker_service_client::WorkerServiceClient<Channel> {
        v1::worker_service_client::WorkerServiceClient::new(self.channel.clone())
    }

    pub fn admin(&self) -> v1::admin_service_client::AdminServiceClient<Channel> {
        v1::admin_service_client::AdminServiceClient::new(self.channel.clone())
    }
}

/// Fails a test that waits for what does not come.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes within 20 s")
}

/// The refusal of a call.
pub fn refused<T: std::fmt::Debug>(answer: Result<T, tonic::Status>) -> Error {
    answer.unwrap_err().into()
}
