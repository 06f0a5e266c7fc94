//! Matching: task queues in memory. Offers of ready tasks from history meet credits of workers.
//!
//! Nothing here is durable: the truth about pending tasks is in the shards, and what is lost here is offered again. Start at `state`,
//! the queues; `dispatch` carries matches out; `api` is the way in. May depend on the shared crates, never on another service's.

mod api;
pub mod config;
mod dispatch;
mod owner;
mod state;

pub use owner::Owners;

use api::Api;
use config::Config;
use dispatch::Dispatcher;
use harvest_persistence::control::{DirectoryStore, Member, ServiceKind};
use harvest_persistence::error::StoreError;
use harvest_proto::internal::v1::matching_service_server::MatchingServiceServer;
use harvest_rpc::MAX_MESSAGE_BYTES;
use harvest_rpc::client::Channels;
use harvest_rpc::network::Network;
use harvest_rpc::server::{ServeError, Server};
use harvest_runtime::{Clock, Health, IdSource};
use harvest_shards::{Directory, DirectoryOptions};
use owner::GrpcOwners;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long tasks on their way to workers may take at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// What the service needs from its process.
#[derive(Clone)]
pub struct Deps {
    /// Membership.
    pub directory: Arc<dyn DirectoryStore>,
    /// How it reaches other processes, and they it.
    pub network: Network,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub ids: Arc<dyn IdSource>,
    /// Where the service says that it is ready.
    pub health: Health,
}

/// Why the service could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The port.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The directory.
    #[error("the directory of the fleet cannot be read; has `harvest migrate` run? {0}")]
    Directory(#[from] StoreError),
}

/// The service, bound and not yet serving.
pub struct Matching {
    server: Server,
    me: Member,
    directory: Directory,
    api: Api,
    health: Health,
    /// Ends what must outlive the tasks on their way.
    inner: CancellationToken,
}

/// Binds the port and makes everything ready to run.
///
/// # Errors
/// When the port is taken or the directory cannot be read.
pub async fn build(config: &Config, deps: Deps) -> Result<Matching, BuildError> {
    let owners = Arc::new(GrpcOwners::new(Arc::new(Channels::on(deps.network.clone()))));
    build_with(config, deps, owners).await
}

/// As [`build`], calling owners through `owners`: for owners in the same process.
///
/// # Errors
/// As [`build`].
pub async fn build_with(config: &Config, deps: Deps, owners: Arc<dyn Owners>) -> Result<Matching, BuildError> {
    deps.health.set("matching", false);
    let inner = CancellationToken::new();
    let server = Server::bind_on(&deps.network, config.grpc_listen).await?.follow(deps.health.watch());
    let address = if config.advertise_address.is_empty() { format!("http://{}", server.address()) } else { config.advertise_address.clone() };
    let me = Member { service: ServiceKind::Matching, process_id: deps.ids.process_id(), address };
    let options = DirectoryOptions { lease_interval: None, ..DirectoryOptions::default() };
    let directory = Directory::start(deps.directory, deps.clock.clone(), options, inner.clone()).await?;
    directory.tell(deps.health.clone());
    let dispatcher = Dispatcher::new(config.bounds(), owners, deps.clock);
    let api = Api { dispatcher, window: config.offers_per_queue, shutdown: inner.clone() };
    Ok(Matching { server, me, directory, api, health: deps.health, inner })
}

impl Matching {
    /// Where other processes reach it.
    pub fn address(&self) -> &str {
        &self.me.address
    }

    /// Serves until `shutdown`; then takes nothing more, lets tasks on their way reach their workers, and ends.
    ///
    /// # Errors
    /// When the server ends by itself.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let Self { server, me, directory, api, health, inner } = self;
        let dispatcher = api.dispatcher.clone();
        let service = MatchingServiceServer::new(api).max_encoding_message_size(MAX_MESSAGE_BYTES);
        let serving = server.add_service(service).serve(inner.clone());
        tokio::pin!(serving);
        let stopping = async {
            // Only once it answers may others find it: the first poll of the server above comes before the store answers this.
            if let Err(error) = directory.announce(me.clone()).await {
                tracing::warn!(%error, "the process could not be announced yet");
            }
            tracing::info!(address = me.address, process_id = me.process_id, "matching serves");
            health.set("matching", true);
            dispatcher.run(shutdown).await;
            health.set("matching", false);
            if let Err(error) = directory.leave(&me.process_id).await {
                tracing::warn!(%error, "could not leave the membership: it runs out by itself");
            }
            dispatcher.stop(STOP_TIMEOUT).await;
            inner.cancel();
        };
        tokio::select! {
            ended = &mut serving => {
                inner.cancel();
                return ended;
            }
            () = stopping => {}
        }
        serving.await
    }
}
