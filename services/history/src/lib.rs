//! History: owns shards. It decides, commits and dispatches.
//!
//! Start at [`shard`], the engine of one shard; [`api`] is the way in, [`fleet`] the way out, [`host`] where shards are opened and
//! closed. May depend on the shared crates, never on another service's.

pub mod api;
pub mod config;
pub mod fleet;
pub mod host;
mod reply;
pub mod shard;

use anyhow::Context as _;
use api::Api;
use config::Config;
use fleet::Fleet;
use harvest_fleet_config::{Bus, ConfigHandle, ConfigOptions, FleetConfig, GrpcSource, WorkflowTypeInfo};
use harvest_ids::{ActivityType, Namespace};
use harvest_persistence::control::{DirectoryStore, Member, ServiceKind};
use harvest_persistence::store::ShardStore;
use harvest_proto::internal::v1::history_service_server::HistoryServiceServer;
use harvest_rpc::MAX_MESSAGE_BYTES;
use harvest_rpc::client::Channels;
use harvest_rpc::network::Network;
use harvest_rpc::request_bytes::RequestBytes;
use harvest_rpc::server::Server;
use harvest_runtime::{Clock, Health, IdSource};
use harvest_shards::{Directory, DirectoryOptions, FleetClock, LeaseKeeper, LeaseOptions};
use harvest_wire::activity_options;
use harvest_workflow_core::command::ActivityOptions;
use harvest_workflow_core::defaults::{Types, WorkflowOptions};
use harvest_workflow_core::limits::Limits;
use host::Host;
use shard::actor::{ShardConfig, ShardDeps};
use shard::memory::Memory;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What the service needs from its process.
#[derive(Clone)]
pub struct Deps {
    /// Runs.
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

/// The service, bound and not yet serving.
pub struct History {
    server: Server,
    me: Member,
    directory: Directory,
    api: Api,
    keeper: LeaseKeeper,
    health: Health,
    /// Ends what must outlive the handing over of shards.
    inner: CancellationToken,
}

/// Binds the port and makes everything ready to run.
///
/// # Errors
/// When the port is taken or the directory cannot be read.
pub async fn build(config: &Config, deps: Deps) -> anyhow::Result<History> {
    deps.health.set("history", false);
    let inner = CancellationToken::new();
    let requests = RequestBytes::new(config.max_request_bytes, "max_request_bytes");
    let server = Server::bind_on(&deps.network, config.grpc_listen).await?.bound_requests(requests, &[]).follow(deps.health.watch());
    let address = if config.advertise_address.is_empty() { format!("http://{}", server.address()) } else { config.advertise_address.clone() };
    let me = Member { service: ServiceKind::History, process_id: deps.ids.process_id(), address };
    let directory = Directory::start(deps.directory.clone(), deps.clock.clone(), DirectoryOptions::default(), inner.clone())
        .await
        .context("the directory of the fleet cannot be read; has `harvest migrate` run?")?;
    directory.tell(deps.health.clone());
    // What runs are stamped with and judged by, whoever owns their shard.
    let clock: Arc<dyn Clock> =
        FleetClock::start(deps.directory.clone(), deps.clock, "history", inner.clone()).await.context("the database's clock cannot be read")?;
    let channels = Arc::new(Channels::on(deps.network.clone()));
    let members = directory.clone();
    let addresses = move || members.members(ServiceKind::Config).into_iter().map(|member| member.address).collect();
    let source = Arc::new(GrpcSource::new(channels.clone(), clock.clone(), addresses));
    let handle = ConfigHandle::start(deps.bus.as_ref(), source.clone(), clock.clone(), ConfigOptions::new("history"), inner.clone()).await;
    let sticky_timeout = Duration::from_millis(config.shard.sticky_timeout_ms);
    let fleet = Arc::new(Fleet::start(me.clone(), directory.clone(), channels, source, clock.clone(), sticky_timeout, inner.clone()));
    let shard_deps = ShardDeps {
        store: deps.store.clone(),
        clock: clock.clone(),
        ids: deps.ids,
        neighbours: fleet.clone(),
        config: shard_config(handle.clone(), inner.clone()),
        tuning: config.shard.tuning(),
        memory: Memory::new(config.shard.cache_bytes),
    };
    let host = Arc::new(Host::new(shard_deps, handle.clone(), fleet));
    let options = LeaseOptions {
        ttl: Duration::from_millis(config.lease.ttl_ms),
        renew_interval: Duration::from_millis(config.lease.renew_interval_ms),
        ..LeaseOptions::default()
    };
    let keeper = LeaseKeeper::new(directory.clone(), deps.directory, clock.clone(), host.clone(), me.clone(), options);
    let api = Api { host, handed: keeper.handed(), store: deps.store, directory: directory.clone(), config: handle, clock };
    Ok(History { server, me, directory, api, keeper, health: deps.health, inner })
}

impl History {
    /// Where other processes reach it.
    pub fn address(&self) -> &str {
        &self.me.address
    }

    /// Serves until `shutdown`, then hands over all shards and ends.
    ///
    /// # Errors
    /// When the server ends by itself.
    pub async fn run(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let service = HistoryServiceServer::new(self.api).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES);
        let serving = harvest_runtime::spawn_owned("history-grpc", self.server.add_service(service).serve(self.inner.clone()));
        if let Err(error) = self.directory.announce(self.me.clone()).await {
            tracing::warn!(%error, "the process could not be announced yet");
        }
        tracing::info!(address = self.me.address, process_id = self.me.process_id, "history serves");
        self.health.set("history", true);
        self.keeper.run(shutdown).await;
        self.health.set("history", false);
        self.inner.cancel();
        serving.await.context("the server task ended badly")??;
        Ok(())
    }
}

/// The part of the fleet's configuration that decisions are made under, as it changes.
fn shard_config(handle: ConfigHandle, shutdown: CancellationToken) -> watch::Receiver<Arc<ShardConfig>> {
    let (mut versions, mut registrations) = (handle.versions(), handle.registrations());
    let types = Arc::new(types(&handle.get()));
    let (sender, receiver) = watch::channel(Arc::new(for_shards(&handle.get(), types.clone())));
    drop(harvest_runtime::spawn("shard-configuration", async move {
        let mut types = types;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = versions.changed() => if changed.is_err() { return },
                changed = registrations.changed() => {
                    if changed.is_err() { return }
                    types = Arc::new(self::types(&handle.get()));
                }
            }
            sender.send_replace(Arc::new(for_shards(&handle.get(), types.clone())));
        }
    }));
    receiver
}

/// What attributes say, as the core has it. What a newer release declares in a way that this one does not understand counts as not said.
fn types(config: &FleetConfig) -> BTreeMap<Namespace, Types> {
    let read = |name: &ActivityType, options: &harvest_proto::v1::ActivityOptions| match activity_options::from_proto("options", Some(options.clone())) {
        Ok(options) => (name.clone(), options),
        Err(error) => {
            tracing::warn!(activity_type = name.as_str(), %error, "what is registered about an activity is not understood");
            (name.clone(), ActivityOptions::default())
        }
    };
    let mut types: BTreeMap<Namespace, Types> = BTreeMap::new();
    for (namespace, activities) in config.activity_types.iter() {
        types.entry(namespace.clone()).or_default().activities = activities.iter().map(|(name, options)| read(name, options)).collect();
    }
    for (namespace, workflows) in &config.workflow_types {
        types.entry(namespace.clone()).or_default().workflows = workflows.iter().map(|(name, info)| (name.clone(), workflow_options(info))).collect();
    }
    types
}

fn workflow_options(info: &WorkflowTypeInfo) -> WorkflowOptions {
    WorkflowOptions { execution_timeout: info.execution_timeout, chain_execution_timeout: info.chain_execution_timeout, sla: info.sla }
}

fn for_shards(config: &FleetConfig, types: Arc<BTreeMap<Namespace, Types>>) -> ShardConfig {
    let limits = Limits {
        max_workflow_execution_timeout: config.limits.max_workflow_execution_timeout,
        max_workflow_chain_timeout: config.limits.max_workflow_chain_timeout,
        ..Limits::default()
    };
    ShardConfig { version: config.version.to_pair(), limits, types }
}
