//! A handle on an in-process bus, a source that is a variable, and a manual clock.

use super::*;
use crate::{LocalBus, MAX_EXECUTION_TIMEOUT_FIELD, ShardVersion};
use async_trait::async_trait;
use harvest_ids::{Namespace, Timestamp, WorkflowType};
use harvest_runtime::ManualClock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
struct FakeSource {
    config: Mutex<FleetConfig>,
    down: AtomicBool,
    pulls: AtomicU64,
}

#[async_trait]
impl ConfigSource for FakeSource {
    async fn pull(&self) -> Result<FleetConfig, Error> {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        if self.down.load(Ordering::Relaxed) {
            return Err(Error::unavailable("down"));
        }
        Ok(FleetConfig { loaded: true, ..self.config.lock().unwrap().clone() })
    }
    async fn acknowledge(&self, _: &str, _: &[ShardVersion]) -> Result<(), Error> {
        Ok(())
    }
}

fn version(number: u64) -> Version {
    Version { generation: 1, number }
}

fn changed(number: u64, millis: u64) -> Message {
    Message::LimitsChanged { version: version(number), limits: serde_json::json!({ MAX_EXECUTION_TIMEOUT_FIELD: millis, "unknown": [1] }) }
}

struct World {
    bus: LocalBus,
    source: Arc<FakeSource>,
    clock: ManualClock,
    handle: ConfigHandle,
    stop: CancellationToken,
}

impl World {
    async fn start(down: bool) -> Self {
        let (bus, source, clock) = (LocalBus::new(), Arc::new(FakeSource::default()), ManualClock::new(Timestamp::from_millis(0)));
        source.config.lock().unwrap().version = version(5);
        source.down.store(down, Ordering::Relaxed);
        clock.advance(Duration::from_secs(100));
        let stop = CancellationToken::new();
        let handle = ConfigHandle::start(&bus, source.clone(), Arc::new(clock.clone()), ConfigOptions::new("test"), stop.clone()).await;
        let world = Self { bus, source, clock, handle, stop };
        world.settle().await;
        world
    }

    async fn settle(&self) {
        for _ in 0..30 {
            tokio::task::yield_now().await;
        }
    }

    async fn publish(&self, message: Message) {
        self.bus.publish(&message).await.unwrap();
        self.settle().await;
    }

    async fn pass(&self, span: Duration) {
        for _ in 0..span.as_millis() / 100 {
            self.clock.advance(Duration::from_millis(100));
            self.settle().await;
        }
    }

    fn timeout_ms(&self) -> Option<u64> {
        self.handle.get().limits.max_workflow_execution_timeout.map(harvest_ids::DurationMs::as_millis)
    }

    fn pulls(&self) -> u64 {
        self.source.pulls.load(Ordering::Relaxed)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test]
async fn a_consecutive_change_is_applied_from_memory_at_once() {
    let world = World::start(false).await;
    let mut versions = world.handle.versions();
    versions.borrow_and_update();
    world.publish(changed(6, 1_000)).await;
    assert_eq!((world.timeout_ms(), world.pulls()), (Some(1_000), 1));
    assert_eq!(*versions.borrow_and_update(), version(6));
    world.publish(changed(6, 2_000)).await;
    world.publish(changed(4, 3_000)).await;
    assert_eq!((world.timeout_ms(), world.pulls()), (Some(1_000), 1), "repeated and old messages change nothing");
}

#[tokio::test]
async fn a_gap_and_a_newer_beacon_are_pulled() {
    let world = World::start(false).await;
    world.source.config.lock().unwrap().version = version(8);
    world.publish(changed(8, 1_000)).await;
    assert_eq!((world.handle.get().version, world.pulls()), (version(8), 2));
    world.source.config.lock().unwrap().version = Version { generation: 2, number: 1 };
    world.publish(Message::Beacon { version: Version { generation: 2, number: 1 } }).await;
    assert_eq!((world.handle.get().version.generation, world.pulls()), (2, 3));
}

#[tokio::test]
async fn without_a_beacon_it_converges_within_five_seconds_and_with_one_it_does_not_pull() {
    let world = World::start(false).await;
    for _ in 0..20 {
        world.publish(Message::Beacon { version: version(5) }).await;
        world.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(world.pulls(), 1);
    world.source.config.lock().unwrap().version = version(6);
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.handle.get().version, version(6));
    world.source.config.lock().unwrap().version = version(7);
    world.pass(Duration::from_millis(2_100)).await;
    assert_eq!(world.handle.get().version, version(7), "while the bus is down it pulls every 2 s");
}

#[tokio::test]
async fn an_outage_keeps_the_last_copy_and_a_first_pull_that_failed_is_repeated() {
    let world = World::start(true).await;
    assert!(!world.handle.get().loaded);
    assert!(world.handle.refresh_after_gap(&world.clock).await.is_err());
    world.source.down.store(false, Ordering::Relaxed);
    world.pass(Duration::from_secs(1)).await;
    assert!(world.handle.get().loaded);
    world.source.down.store(true, Ordering::Relaxed);
    world.pass(Duration::from_secs(30)).await;
    assert_eq!((world.handle.get().version, world.handle.get().loaded), (version(5), true));
    assert!(world.pulls() < 80, "{}", world.pulls());
}

#[tokio::test]
async fn a_replica_that_is_behind_never_takes_limits_back_but_its_types_count() {
    let world = World::start(false).await;
    world.publish(changed(6, 1_000)).await;
    let (namespace, name) = (Namespace::default(), WorkflowType::new("order").unwrap());
    world.source.config.lock().unwrap().workflow_types.entry(namespace.clone()).or_default().insert(name.clone(), Default::default());
    world.publish(Message::RegistryChanged).await;
    let config = world.handle.get();
    assert_eq!((config.version, world.timeout_ms()), (version(6), Some(1_000)));
    assert!(config.workflow_type(&namespace, &name).is_some());
}

impl ConfigHandle {
    /// A refresh that does not wait for a clock that stands still.
    async fn refresh_after_gap(&self, clock: &ManualClock) -> Result<(), Error> {
        clock.advance(Duration::from_secs(1));
        self.refresh().await
    }
}
