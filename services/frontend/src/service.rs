//! Building and running the service.

use crate::config::Config;
use crate::configs::Configs;
use crate::edge::Edge;
use crate::grpc::Grpc;
use crate::http;
use crate::http::listener::OtherListener;
use crate::routing::Router;
use crate::session::Sessions;
use harvest_fleet_config::{Bus, ConfigHandle, ConfigOptions, GrpcSource};
use harvest_persistence::control::{DirectoryStore, Member, ServiceKind};
use harvest_persistence::error::StoreError;
use harvest_persistence::store::ShardStore;
use harvest_proto::internal::v1::frontend_service_server::FrontendServiceServer;
use harvest_proto::v1::admin_service_server::AdminServiceServer;
use harvest_proto::v1::worker_service_server::WorkerServiceServer;
use harvest_proto::v1::workflow_service_server::WorkflowServiceServer;
use harvest_rpc::network::{Bound, Network};
use harvest_rpc::request_bytes::RequestBytes;
use harvest_rpc::{Channels, MAX_MESSAGE_BYTES, ServeError, Server};
use harvest_runtime::{Clock, Health, IdSource};
use harvest_shards::{Directory, DirectoryOptions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The part of readiness that this service tells.
const HEALTH_PART: &str = "frontend";

/// What the service needs from its process.
#[derive(Clone)]
pub struct Deps {
    /// Runs, for lists only.
    pub store: Arc<dyn ShardStore>,
    /// Membership, leases, slots.
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

/// Why the frontend did not come up.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The gRPC port.
    #[error(transparent)]
    Grpc(#[from] ServeError),
    /// The HTTP port.
    #[error("cannot listen on {address}: {source}")]
    Http {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The directory could not be read.
    #[error("the directory of the fleet cannot be read (has `harvest migrate` run?): {0}")]
    Directory(#[from] StoreError),
}

/// Why the frontend ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The gRPC server.
    #[error(transparent)]
    Grpc(#[from] ServeError),
}

/// A frontend, bound and not yet serving.
pub struct Frontend {
    edge: Arc<Edge>,
    me: Member,
    server: Server,
    http: Bound,
    http_address: SocketAddr,
    http_options: harvest_runtime::http::Options,
    health: Health,
    /// Ends sessions and waits; begins with the shutdown.
    stopping: CancellationToken,
    /// Ends what the last calls still need.
    inner: CancellationToken,
}

/// Binds the ports and makes everything ready to run.
///
/// # Errors
/// [`BuildError`] when a port is taken or the directory cannot be read.
pub async fn build(config: &Config, deps: Deps) -> Result<Frontend, BuildError> {
    deps.health.set(HEALTH_PART, false);
    let drain_timeout = Duration::from_millis(config.drain_timeout_ms);
    let max_age = (config.max_connection_age_ms > 0).then(|| Duration::from_millis(config.max_connection_age_ms));
    let server = Server::bind_on(&deps.network, config.grpc_listen).await?;
    let server = server.drain_timeout(drain_timeout).max_connection_age(max_age).max_connections(config.grpc_max_connections).follow(deps.health.watch());
    let failed = |source| BuildError::Http { address: config.http_listen, source };
    let http = deps.network.bind(config.http_listen).await.map_err(failed)?;
    let http_address = http.local_addr().map_err(failed)?;
    let http_options = harvest_runtime::http::Options {
        header_timeout: Duration::from_millis(config.http_header_timeout_ms),
        drain_timeout,
        max_connections: config.http_max_connections,
    };
    let address = if config.advertise_address.is_empty() { format!("http://{}", server.address()) } else { config.advertise_address.clone() };
    let me = Member { service: ServiceKind::Frontend, process_id: deps.ids.process_id(), address };
    let (inner, stopping) = (CancellationToken::new(), CancellationToken::new());
    let directory = Directory::start(deps.directory, deps.clock.clone(), DirectoryOptions::default(), inner.clone()).await?;
    directory.tell(deps.health.clone());
    let channels = Arc::new(Channels::on(deps.network.clone()));
    let members = directory.clone();
    let addresses = move || members.members(ServiceKind::Config).into_iter().map(|member| member.address).collect();
    let source = Arc::new(GrpcSource::new(channels.clone(), deps.clock.clone(), addresses));
    let handle = ConfigHandle::start(deps.bus.as_ref(), source, deps.clock.clone(), ConfigOptions::new("frontend"), inner.clone()).await;
    let options = config.options();
    let edge = Arc::new(Edge {
        router: Router::new(directory.clone(), channels.clone()),
        configs: Configs::new(directory, channels),
        config: handle,
        runs: deps.store,
        request_bytes: RequestBytes::new(options.max_request_bytes, "limits.max_request_bytes"),
        sessions: Sessions::new(me.process_id.clone(), options.max_sessions),
        clock: deps.clock,
        ids: deps.ids,
        shutdown: stopping.clone(),
        options,
    });
    Ok(Frontend { edge, me, server, http, http_address, http_options, health: deps.health, stopping, inner })
}

impl Frontend {
    /// Where other processes reach it by gRPC.
    pub fn address(&self) -> &str {
        &self.me.address
    }

    /// Where HTTP is served: the API, health and metrics.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Serves until `shutdown`, then ends sessions and waits (workers and callers go to another frontend), finishes the calls in flight, and ends.
    ///
    /// # Errors
    /// [`RunError`] when a server ends by itself.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), RunError> {
        let Self { edge, me, server, http, http_options, health, stopping, inner, .. } = self;
        let directory = edge.router.directory().clone();
        if let Err(error) = directory.announce(me.clone()).await {
            tracing::warn!(%error, "the process could not be announced yet");
        }
        let reports = harvest_runtime::spawn_owned("session-reports", Sessions::run(edge.clone()));
        let routes = http::routes(edge.clone(), health.clone());
        let request_bytes = edge.request_bytes.clone();
        let grpc = Grpc { edge };
        let server = server
            .bound_requests(request_bytes, &["/harvest.v1.WorkerService/OpenSession"])
            .add_service(WorkflowServiceServer::new(grpc.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES))
            .add_service(WorkerServiceServer::new(grpc.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES))
            .add_service(FrontendServiceServer::new(grpc.clone()))
            .add_service(AdminServiceServer::new(grpc).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES));
        tracing::info!(address = me.address, process_id = me.process_id, "frontend serves");
        health.set(HEALTH_PART, true);
        let serving_http = async {
            match http {
                Bound::Tcp(listener) => harvest_runtime::http::serve(listener, routes, http_options, stopping.clone()).await,
                Bound::Other(listener) => harvest_runtime::http::serve(OtherListener(listener), routes, http_options, stopping.clone()).await,
            }
            Ok(())
        };
        let serving_grpc = async { server.serve(stopping.clone()).await.map_err(RunError::Grpc) };
        let leaving = async {
            shutdown.cancelled().await;
            health.set(HEALTH_PART, false);
            if let Err(error) = directory.leave(&me.process_id).await {
                tracing::warn!(%error, "could not leave the membership: it runs out by itself");
            }
            stopping.cancel();
            Ok(())
        };
        let served = tokio::try_join!(serving_grpc, serving_http, leaving);
        drop(reports);
        inner.cancel();
        served.map(|_| ())
    }
}
