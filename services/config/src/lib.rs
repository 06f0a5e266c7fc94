//! Config: the only writer of the type registry, of fleet limits and of their audit rows. Any process of it serves any call.
//!
//! A change is committed, then broadcast; the broadcast is a hint, and every process that misses it pulls. Start at `hub`; `api` is the
//! way in. May depend on the shared crates, never on another service's.

mod api;
pub mod config;
mod hub;

use crate::hub::Hub;
use api::Api;
use config::Config;
use harvest_fleet_config::Bus;
use harvest_persistence::control::{ConfigStore, DirectoryStore, Member, ServiceKind};
use harvest_persistence::error::StoreError;
use harvest_proto::internal::v1::config_service_server::ConfigServiceServer;
use harvest_rpc::MAX_MESSAGE_BYTES;
use harvest_rpc::network::Network;
use harvest_rpc::server::{ServeError, Server};
use harvest_runtime::{Clock, Health, IdSource};
use harvest_shards::{Directory, DirectoryOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What the service needs from its process.
#[derive(Clone)]
pub struct Deps {
    /// The configuration.
    pub store: Arc<dyn ConfigStore>,
    /// Membership.
    pub directory: Arc<dyn DirectoryStore>,
    /// Broadcasts.
    pub bus: Arc<dyn Bus>,
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
pub struct ConfigServer {
    server: Server,
    me: Member,
    directory: Directory,
    hub: Arc<Hub>,
    beacon: Duration,
    check: Duration,
    health: Health,
    /// Ends the server and the directory after the beacon.
    inner: CancellationToken,
}

/// Binds the port and makes everything ready to run.
///
/// # Errors
/// When the port is taken or the directory cannot be read.
pub async fn build(config: &Config, deps: Deps) -> Result<ConfigServer, BuildError> {
    deps.health.set("config", false);
    let inner = CancellationToken::new();
    let server = Server::bind_on(&deps.network, config.grpc_listen).await?.follow(deps.health.watch());
    let address = if config.advertise_address.is_empty() { format!("http://{}", server.address()) } else { config.advertise_address.clone() };
    let me = Member { service: ServiceKind::Config, process_id: deps.ids.process_id(), address };
    let options = DirectoryOptions { lease_interval: None, ..DirectoryOptions::default() };
    let directory = Directory::start(deps.directory, deps.clock.clone(), options, inner.clone()).await?;
    directory.tell(deps.health.clone());
    let hub = Arc::new(Hub::new(deps.store, deps.bus, deps.clock, config.worker_ttl_ms));
    let (beacon, check) = (Duration::from_millis(config.beacon_interval_ms), Duration::from_millis(config.check_interval_ms));
    Ok(ConfigServer { server, me, directory, hub, beacon, check, health: deps.health, inner })
}

impl ConfigServer {
    /// Where other processes reach it.
    pub fn address(&self) -> &str {
        &self.me.address
    }

    /// Serves until `shutdown`, then lets calls in flight end.
    ///
    /// # Errors
    /// When the server ends by itself.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let Self { server, me, directory, hub, beacon, check, health, inner } = self;
        let service =
            ConfigServiceServer::new(Api { hub: hub.clone() }).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES);
        let serving = server.add_service(service).serve(inner.clone());
        tokio::pin!(serving);
        let broadcasting = async {
            if let Err(error) = directory.announce(me.clone()).await {
                tracing::warn!(%error, "the process could not be announced yet");
            }
            tracing::info!(address = me.address, process_id = me.process_id, "config serves");
            health.set("config", true);
            hub.run(beacon, check, shutdown).await;
            health.set("config", false);
            if let Err(error) = directory.leave(&me.process_id).await {
                tracing::warn!(%error, "could not leave the membership: it runs out by itself");
            }
            inner.cancel();
        };
        tokio::select! {
            ended = &mut serving => {
                inner.cancel();
                return ended;
            }
            () = broadcasting => {}
        }
        serving.await
    }
}
