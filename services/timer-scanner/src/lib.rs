//! Timer scanner: reads the due rows of its shards ahead of time and tells owners when the time of a run has come.
//!
//! The scan is what guarantees a deadline; what owners announce only makes near ones exact. Two scanners of one shard are harmless: the
//! owner checks each run against its own deadlines. Start at `scanner`; `wheel` is what is kept in memory, `api` the way in. May depend on
//! the shared crates, never on another service's.

mod api;
pub mod config;
mod owner;
mod scanner;
mod wheel;

pub use owner::Owners;

use api::Api;
use config::Config;
use harvest_persistence::control::{DirectoryStore, Member, ServiceKind};
use harvest_persistence::error::StoreError;
use harvest_persistence::store::ShardStore;
use harvest_proto::internal::v1::timer_scanner_service_server::TimerScannerServiceServer;
use harvest_rpc::client::Channels;
use harvest_rpc::network::Network;
use harvest_rpc::server::{ServeError, Server};
use harvest_runtime::{Clock, Health, IdSource};
use harvest_shards::{Directory, DirectoryOptions, FleetClock};
use owner::GrpcOwners;
use scanner::Scanner;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What the service needs from its process.
#[derive(Clone)]
pub struct Deps {
    /// Due rows.
    pub store: Arc<dyn ShardStore>,
    /// Membership and owners.
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
pub struct TimerScanner {
    server: Server,
    me: Member,
    directory: Directory,
    scanner: Scanner,
    health: Health,
    /// Ends the server and the directory after the scanner.
    inner: CancellationToken,
}

/// Binds the port and makes everything ready to run.
///
/// # Errors
/// When the port is taken or the directory cannot be read.
pub async fn build(config: &Config, deps: Deps) -> Result<TimerScanner, BuildError> {
    let owners = Arc::new(GrpcOwners::new(Arc::new(Channels::on(deps.network.clone()))));
    build_with(config, deps, owners).await
}

/// As [`build`], calling owners through `owners`: for owners in the same process.
///
/// # Errors
/// As [`build`].
pub async fn build_with(config: &Config, deps: Deps, owners: Arc<dyn Owners>) -> Result<TimerScanner, BuildError> {
    deps.health.set("timer-scanner", false);
    let inner = CancellationToken::new();
    let server = Server::bind_on(&deps.network, config.grpc_listen).await?.follow(deps.health.watch());
    let address = if config.advertise_address.is_empty() { format!("http://{}", server.address()) } else { config.advertise_address.clone() };
    let me = Member { service: ServiceKind::TimerScanner, process_id: deps.ids.process_id(), address };
    let directory = Directory::start(deps.directory.clone(), deps.clock.clone(), DirectoryOptions::default(), inner.clone()).await?;
    directory.tell(deps.health.clone());
    let clock = FleetClock::start(deps.directory, deps.clock, "timer-scanner", inner.clone()).await?;
    let scanner = Scanner::new(me.process_id.clone(), deps.store, owners, directory.clone(), clock, config.scan.options());
    Ok(TimerScanner { server, me, directory, scanner, health: deps.health, inner })
}

impl TimerScanner {
    /// Where other processes reach it.
    pub fn address(&self) -> &str {
        &self.me.address
    }

    /// Serves until `shutdown`, then leaves its shards to the other scanners and ends.
    ///
    /// # Errors
    /// When the server ends by itself.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let Self { server, me, directory, scanner, health, inner } = self;
        let serving = server.add_service(TimerScannerServiceServer::new(Api { scanner: scanner.clone() })).serve(inner.clone());
        tokio::pin!(serving);
        let scanning = async {
            if let Err(error) = directory.announce(me.clone()).await {
                tracing::warn!(%error, "the process could not be announced yet");
            }
            tracing::info!(address = me.address, process_id = me.process_id, "timer scanner serves");
            health.set("timer-scanner", true);
            let stopping = async {
                shutdown.cancelled().await;
                health.set("timer-scanner", false);
                // Others take the shards over as soon as they see this; until then two scan, which is harmless.
                if let Err(error) = directory.leave(&me.process_id).await {
                    tracing::warn!(%error, "could not leave the membership: it runs out by itself");
                }
            };
            tokio::join!(scanner.run(shutdown.clone()), stopping);
            inner.cancel();
        };
        tokio::select! {
            ended = &mut serving => {
                inner.cancel();
                return ended;
            }
            () = scanning => {}
        }
        serving.await
    }
}
