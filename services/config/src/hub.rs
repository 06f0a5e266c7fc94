//! What all calls share: the store, the bus, the newest version known here.

use harvest_fleet_config::{Bus, Message, Version};
use harvest_ids::{Namespace, TaskQueue};
use harvest_persistence::control::{ConfigStore, StoredLimits, StoredType, StoredWorker, TypeKind};
use harvest_persistence::error::StoreError;
use harvest_proto::internal::v1::{ConfigSnapshot, RegisteredActivityType, RegisteredType, ServedQueue};
use harvest_proto::v1::{ActivityTypeInfo, FleetLimits, Hello, WorkflowTypeInfo};
use harvest_rpc::{Error, Reason};
use harvest_runtime::Clock;
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Shared by all calls of the process.
pub(crate) struct Hub {
    pub store: Arc<dyn ConfigStore>,
    pub bus: Arc<dyn Bus>,
    pub clock: Arc<dyn Clock>,
    pub worker_ttl_ms: u64,
    /// Wakes those who wait for acknowledgements.
    pub acknowledged: Notify,
    known: Mutex<Known>,
    /// Serialises reads of the whole configuration: calls at the same time share one.
    reading: tokio::sync::Mutex<Option<(Duration, ConfigSnapshot)>>,
}

/// What this process knows without asking the store. Other processes write too, so it is only good for finding out what is news.
#[derive(Debug, Default)]
struct Known {
    version: Version,
    types: BTreeMap<(TypeKind, Namespace, String), Vec<u8>>,
    queues: BTreeSet<(Namespace, TaskQueue)>,
    bus_failing: bool,
}

/// A store that failed, as the caller sees it.
pub(crate) fn unavailable(error: &StoreError) -> Error {
    match error {
        StoreError::Unavailable(_) => Error::unavailable(error.to_string()),
        StoreError::Corrupt(_) => Error::new(Reason::DataLoss, error.to_string()),
        StoreError::Refused(_) => Error::internal(error.to_string()),
    }
}

/// Reads the stored limits.
pub(crate) fn document(limits: &StoredLimits) -> Result<serde_json::Map<String, serde_json::Value>, Error> {
    serde_json::from_str(&limits.document).map_err(|error| Error::new(Reason::DataLoss, format!("the stored limits are no JSON object: {error}")))
}

pub(crate) fn version(limits: &StoredLimits) -> Version {
    Version { generation: limits.generation, number: limits.number }
}

/// The limits of a document, as this release knows them.
pub(crate) fn limits(document: &serde_json::Map<String, serde_json::Value>) -> FleetLimits {
    harvest_fleet_config::FleetLimits::from_document(&serde_json::Value::Object(document.clone())).into()
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn ConfigStore>, bus: Arc<dyn Bus>, clock: Arc<dyn Clock>, worker_ttl_ms: u64) -> Self {
        Self { store, bus, clock, worker_ttl_ms, acknowledged: Notify::new(), known: Mutex::default(), reading: tokio::sync::Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code panics while it holds this lock")
    }

    /// The newest version known here.
    pub(crate) fn version(&self) -> Version {
        self.known().version
    }

    /// Broadcasts a version that is news here, with its limits.
    pub(crate) async fn learn(&self, limits: &StoredLimits) -> Result<(), Error> {
        let (version, document) = (version(limits), document(limits)?);
        {
            let mut known = self.known();
            if version <= known.version {
                return Ok(());
            }
            known.version = version;
        }
        self.publish(&Message::LimitsChanged { version, limits: document.into() }).await;
        Ok(())
    }

    /// Broadcasts. A failure is no error: subscribers that hear nothing pull.
    pub(crate) async fn publish(&self, message: &Message) {
        let failed = self.bus.publish(message).await;
        let was_failing = std::mem::replace(&mut self.known().bus_failing, failed.is_err());
        match failed {
            Err(error) if !was_failing => tracing::warn!(%error, "broadcasts fail: processes pull every few seconds meanwhile"),
            Ok(()) if was_failing => tracing::info!("broadcasts work again"),
            _ => {}
        }
    }

    /// Everything, read from the store after the call began.
    pub(crate) async fn snapshot(&self) -> Result<ConfigSnapshot, Error> {
        let asked = self.clock.monotonic();
        let mut last = self.reading.lock().await;
        if let Some((began, snapshot)) = last.as_ref()
            && *began > asked
        {
            return Ok(snapshot.clone());
        }
        let began = self.clock.monotonic();
        let (limits, types, workers) =
            tokio::try_join!(self.store.limits(), self.store.types(), self.store.workers(self.worker_ttl_ms)).map_err(|error| unavailable(&error))?;
        self.learn(&limits).await?;
        let snapshot = self.assemble(&limits, types, &workers)?;
        *last = Some((began, snapshot.clone()));
        Ok(snapshot)
    }

    fn assemble(&self, stored: &StoredLimits, types: Vec<StoredType>, workers: &[StoredWorker]) -> Result<ConfigSnapshot, Error> {
        let queues: BTreeSet<(Namespace, TaskQueue)> = workers.iter().flat_map(queues_of).collect();
        let document = document(stored)?;
        let (mut workflow_types, mut activity_types) = (Vec::new(), Vec::new());
        for stored in &types {
            let namespace = stored.namespace.to_string();
            let decoded = match stored.kind {
                TypeKind::Workflow => {
                    WorkflowTypeInfo::decode(stored.info.as_slice()).map(|info| workflow_types.push(RegisteredType { namespace, workflow_type: Some(info) }))
                }
                TypeKind::Activity => ActivityTypeInfo::decode(stored.info.as_slice())
                    .map(|info| activity_types.push(RegisteredActivityType { namespace, activity_type: Some(info) })),
            };
            if let Err(error) = decoded {
                tracing::warn!(%error, kind = ?stored.kind, name = stored.name, "a stored type does not decode");
            }
        }
        let snapshot = ConfigSnapshot {
            version: Some(version(stored).into()),
            limits: Some(limits(&document)),
            workflow_types,
            served_queues: queues.iter().map(|(namespace, queue)| ServedQueue { namespace: namespace.to_string(), task_queue: queue.to_string() }).collect(),
            activity_types,
        };
        let mut known = self.known();
        known.types = types.into_iter().map(|stored| ((stored.kind, stored.namespace, stored.name), stored.info)).collect();
        known.queues = queues;
        Ok(snapshot)
    }

    /// Those of `types` that are not known here as they are.
    pub(crate) fn new_types(&self, types: Vec<StoredType>) -> Vec<StoredType> {
        let known = self.known();
        types.into_iter().filter(|stored| known.types.get(&(stored.kind, stored.namespace.clone(), stored.name.clone())) != Some(&stored.info)).collect()
    }

    /// Remembers types that have been stored.
    pub(crate) fn remember_types(&self, types: Vec<StoredType>) {
        self.known().types.extend(types.into_iter().map(|stored| ((stored.kind, stored.namespace, stored.name), stored.info)));
    }

    /// Remembers served queues; true when one is new.
    pub(crate) fn remember_queues(&self, queues: impl IntoIterator<Item = (Namespace, TaskQueue)>) -> bool {
        let mut known = self.known();
        let before = known.queues.len();
        known.queues.extend(queues);
        known.queues.len() > before
    }

    /// Broadcasts the version, and what the store has that nobody broadcast, until `shutdown`.
    pub(crate) async fn run(&self, beacon: Duration, check: Duration, shutdown: CancellationToken) {
        let (mut next_beacon, mut next_check) = (Duration::ZERO, Duration::ZERO);
        let mut failing = false;
        loop {
            let now = self.clock.monotonic();
            if now >= next_check {
                next_check = now + check;
                let learned = match self.store.limits().await {
                    Ok(limits) => self.learn(&limits).await,
                    Err(error) => Err(unavailable(&error)),
                };
                let was_failing = std::mem::replace(&mut failing, learned.is_err());
                if let Err(error) = learned
                    && !was_failing
                {
                    tracing::warn!(%error, "the stored limits cannot be read");
                }
            }
            // A process that cannot read the store does not know whether its version is the newest: it must not calm others.
            if now >= next_beacon && !failing {
                next_beacon = now + beacon;
                self.publish(&Message::Beacon { version: self.version() }).await;
            }
            let next = if failing { next_check } else { next_beacon.min(next_check) };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.clock.sleep(next.saturating_sub(self.clock.monotonic())) => {}
            }
        }
    }
}

/// The queues that a worker serves. Names that do not parse were refused when it connected.
pub(crate) fn queues_of(worker: &StoredWorker) -> Vec<(Namespace, TaskQueue)> {
    let hello = Hello::decode(worker.hello.as_slice()).unwrap_or_default();
    let queue = |name: &String| Some((worker.namespace.clone(), TaskQueue::new(name).ok()?));
    hello.task_queues.iter().filter_map(queue).collect()
}
