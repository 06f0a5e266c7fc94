//! The whole service over gRPC on the embedded store in memory and the in-process bus.

use super::*;
use crate::config::Config;
use crate::{Deps, build};
use harvest_fleet_config::{Bus as _, BusEvent, ConfigHandle, ConfigOptions, GrpcSource, LocalBus, Message, ShardVersion};
use harvest_ids::{Epoch, Namespace, ShardId, TaskQueue, WorkflowType};
use harvest_persistence::embedded::EmbeddedStore;
use harvest_persistence::store::ShardStore as _;
use harvest_proto::internal::v1::config_service_client::ConfigServiceClient;
use harvest_proto::internal::v1::{RegisterWorkersCall, WorkerSession};
use harvest_proto::v1::{Hello, ListWorkersRequest, WorkflowTypeInfo};
use harvest_rpc::Network;
use harvest_rpc::client::Channels;
use harvest_runtime::config::load;
use harvest_runtime::{Health, SystemClock, SystemIds};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

struct World {
    client: ConfigServiceClient<Channel>,
    handle: ConfigHandle,
    bus: Arc<LocalBus>,
    store: Arc<EmbeddedStore>,
    stop: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let store = Arc::new(EmbeddedStore::in_memory().unwrap());
        store.migrate(2).await.unwrap();
        let (bus, clock, stop) = (Arc::new(LocalBus::new()), Arc::new(SystemClock::new()), CancellationToken::new());
        let variables = [("HARVEST_GRPC_LISTEN", "127.0.0.1:0"), ("HARVEST_DATABASE_URL", "postgres://unused")];
        let config: Config = load(None, variables.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap().settings;
        let deps = Deps {
            store: store.clone(),
            directory: store.clone(),
            bus: bus.clone(),
            network: Network::tcp(),
            clock: clock.clone(),
            ids: Arc::new(SystemIds),
            health: Health::new(),
        };
        let service = build(&config, deps).await.unwrap();
        let address = service.address().to_owned();
        drop(harvest_runtime::spawn("config", service.run(stop.clone())));
        let channels = Arc::new(Channels::default());
        let client = ConfigServiceClient::new(channels.get(&address).unwrap());
        let source = Arc::new(GrpcSource::new(channels, clock.clone(), move || vec![address.clone()]));
        let handle = ConfigHandle::start(bus.as_ref(), source, clock, ConfigOptions::new("test"), stop.clone()).await;
        Self { client, handle, bus, store, stop }
    }

    async fn patch(&mut self, millis: Option<u64>, wait_ms: u64) -> Result<PatchFleetLimitsResponse, Error> {
        let request = PatchFleetLimitsRequest {
            update_mask: vec![MAX_EXECUTION_TIMEOUT_FIELD.to_owned()],
            limits: Some(FleetLimits { max_workflow_execution_timeout_ms: millis, ..FleetLimits::default() }),
            wait_ms: Some(wait_ms),
            actor: "ops".to_owned(),
            reason: "test".to_owned(),
        };
        Ok(self.client.patch_fleet_limits(request).await?.into_inner())
    }

    fn timeout_ms(&self) -> Option<u64> {
        self.handle.get().limits.max_workflow_execution_timeout.map(DurationMs::as_millis)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits for a condition that events of the in-process bus bring about.
async fn until(mut met: impl FnMut() -> bool, events: &mut tokio::sync::broadcast::Receiver<BusEvent>) {
    tokio::time::timeout(Duration::from_secs(20), async {
        while !met() {
            events.recv().await.unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("within 20 s");
}

#[tokio::test]
async fn a_change_reaches_subscribers_and_waits_for_every_shards_present_owner() {
    let mut world = World::start().await;
    let mut events = world.bus.subscribe();
    let epochs = [world.store.take_over(ShardId(0)).await.unwrap().epoch, world.store.take_over(ShardId(1)).await.unwrap().epoch];
    let patched = world.patch(Some(60_000), 0).await.unwrap();
    assert_eq!((patched.acknowledged, patched.pending.clone()), (0, vec![0, 1]));
    until(|| world.timeout_ms() == Some(60_000), &mut events).await;

    // Owners that acknowledge whatever version they see, one of them with an epoch that is over.
    let (source, mut versions, stop) = (world.handle.source(), world.handle.versions(), world.stop.clone());
    let acknowledging = harvest_runtime::spawn("owners", async move {
        while versions.changed().await.is_ok() {
            let version = *versions.borrow_and_update();
            let one = |shard, epoch| ShardVersion { shard_id: ShardId(shard), epoch, version };
            let stale = if version.number % 2 == 0 { epochs[1] } else { Epoch(epochs[1].0 - 1) };
            source.acknowledge("history", &[one(0, epochs[0]), one(1, stale)]).await.unwrap();
            if stop.is_cancelled() {
                return;
            }
        }
    });
    let patched = world.patch(None, 10_000).await.unwrap();
    assert_eq!((patched.acknowledged, patched.pending, patched.limits.unwrap().max_workflow_execution_timeout_ms), (2, vec![], None));
    let patched = world.patch(Some(5), 300).await.unwrap();
    assert_eq!((patched.acknowledged, patched.pending), (1, vec![1]), "an acknowledgement of an old epoch does not count");
    assert_eq!(patched.version.unwrap().number, 3);
    acknowledging.abort();
}

#[tokio::test]
async fn bad_requests_name_the_field_and_store_nothing() {
    let mut world = World::start().await;
    let good = PatchFleetLimitsRequest { update_mask: vec![MAX_EXECUTION_TIMEOUT_FIELD.to_owned()], wait_ms: Some(0), ..Default::default() };
    let with = |millis| Some(FleetLimits { max_workflow_execution_timeout_ms: Some(millis), ..FleetLimits::default() });
    let cases = [
        (PatchFleetLimitsRequest { update_mask: vec![], ..good.clone() }, "update_mask", "at least one"),
        (PatchFleetLimitsRequest { update_mask: vec!["max_workflow_execution_timeout".to_owned()], ..good.clone() }, "update_mask", "did you mean"),
        (PatchFleetLimitsRequest { update_mask: [good.update_mask.clone(), good.update_mask.clone()].concat(), ..good.clone() }, "update_mask", "twice"),
        (PatchFleetLimitsRequest { limits: with(0), ..good.clone() }, MAX_EXECUTION_TIMEOUT_FIELD, "1 ms to 10 years"),
        (PatchFleetLimitsRequest { limits: with(u64::MAX), ..good.clone() }, MAX_EXECUTION_TIMEOUT_FIELD, "1 ms to 10 years"),
        (PatchFleetLimitsRequest { wait_ms: Some(10_001), ..good.clone() }, "wait_ms", "0 to 10000"),
        (PatchFleetLimitsRequest { reason: "x".repeat(1_025), ..good.clone() }, "reason", "1024"),
        (PatchFleetLimitsRequest { actor: "a\0b".to_owned(), ..good.clone() }, "actor", "U+0000"),
    ];
    for (request, field, text) in cases {
        let error = Error::from(world.client.patch_fleet_limits(request).await.unwrap_err());
        assert_eq!((error.reason, error.field.as_deref()), (Reason::InvalidArgument, Some(field)));
        assert!(error.message.contains(text), "{}", error.message);
    }
    let snapshot = world.client.get_snapshot(harvest_proto::internal::v1::GetSnapshotCall {}).await.unwrap().into_inner();
    assert_eq!(snapshot.version.unwrap().number, 0);
}

#[tokio::test]
async fn changes_at_the_same_time_all_happen_one_after_the_other() {
    let mut world = World::start().await;
    let patches: Vec<_> = (1..=4)
        .map(|millis| {
            let mut client = world.client.clone();
            let request = PatchFleetLimitsRequest {
                update_mask: vec![MAX_EXECUTION_TIMEOUT_FIELD.to_owned()],
                limits: Some(FleetLimits { max_workflow_execution_timeout_ms: Some(millis), ..FleetLimits::default() }),
                wait_ms: Some(0),
                ..Default::default()
            };
            harvest_runtime::spawn("patch", async move { client.patch_fleet_limits(request).await.unwrap().into_inner().version.unwrap().number })
        })
        .collect();
    let mut numbers = Vec::new();
    for patch in patches {
        numbers.push(patch.await.unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(world.patch(None, 0).await.unwrap().version.unwrap().number, 5);
}

#[tokio::test]
async fn a_workers_types_and_queues_reach_every_process_and_it_is_listed_until_it_ends() {
    let mut world = World::start().await;
    let mut events = world.bus.subscribe();
    let hello = Hello {
        identity: "host:1".to_owned(),
        task_queues: vec!["orders".to_owned()],
        workflow_types: vec![WorkflowTypeInfo { name: "order".to_owned(), execution_timeout_ms: 5_000, ..WorkflowTypeInfo::default() }],
        ..Hello::default()
    };
    let session = WorkerSession { worker_id: "w1".to_owned(), hello: Some(hello) };
    let call = RegisterWorkersCall { process_id: "f".to_owned(), sessions: vec![session], ended_worker_ids: vec![] };
    world.client.register_workers(call.clone()).await.unwrap();
    let (namespace, queue, order) = (Namespace::default(), TaskQueue::new("orders").unwrap(), WorkflowType::new("order").unwrap());
    world.handle.refresh().await.unwrap();
    let config = world.handle.get();
    assert_eq!(config.workflow_type(&namespace, &order).unwrap().execution_timeout.unwrap().as_millis(), 5_000);
    assert!(config.is_served(&namespace, &queue));
    until_registry_changed(&mut events).await;

    world.client.register_workers(call).await.unwrap(); // again: nothing is new
    let listed = world.client.list_workers(ListWorkersRequest::default()).await.unwrap().into_inner().workers;
    assert_eq!((listed.len(), listed[0].worker_id.as_str(), listed[0].workflow_types.clone()), (1, "w1", vec!["order".to_owned()]));
    let ended = RegisterWorkersCall { process_id: "f".to_owned(), sessions: vec![], ended_worker_ids: vec!["w1".to_owned()] };
    world.client.register_workers(ended).await.unwrap();
    until_registry_changed(&mut events).await;
    assert!(world.client.list_workers(ListWorkersRequest::default()).await.unwrap().into_inner().workers.is_empty());
    world.handle.refresh().await.unwrap();
    let config = world.handle.get();
    assert!(!config.is_served(&namespace, &queue) && config.workflow_type(&namespace, &order).is_some());
}

async fn until_registry_changed(events: &mut tokio::sync::broadcast::Receiver<BusEvent>) {
    let wait = async { while events.recv().await.unwrap() != BusEvent::Message(Message::RegistryChanged) {} };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("within 20 s");
}
