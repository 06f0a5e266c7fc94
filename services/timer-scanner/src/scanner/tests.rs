//! The scanner on the embedded store in memory, a manual clock, and an owner that only notes what it is told.

use super::*;
use async_trait::async_trait;
use harvest_persistence::batch::Batch;
use harvest_persistence::conformance::fixture::{Owner, due, id};
use harvest_persistence::control::{DirectoryStore as _, Member};
use harvest_persistence::embedded::EmbeddedStore;
use harvest_runtime::ManualClock;
use harvest_shards::DirectoryOptions;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
struct FakeOwner {
    told: Mutex<Vec<(String, u32, Vec<ExecutionId>)>>,
    down: AtomicBool,
}

#[async_trait]
impl Owners for FakeOwner {
    async fn fire_timers(&self, address: &str, call: FireTimersCall) -> Result<(), Error> {
        if self.down.load(Ordering::Relaxed) {
            return Err(Error::unavailable("down"));
        }
        let id = |bytes: &bytes::Bytes| ExecutionId::from_uuid(uuid::Uuid::from_slice(bytes).unwrap()).unwrap();
        self.told.lock().unwrap().push((address.to_owned(), call.shard_id, call.execution_ids.iter().map(id).collect()));
        Ok(())
    }
}

struct World {
    clock: ManualClock,
    store: Arc<EmbeddedStore>,
    owner: Arc<FakeOwner>,
    scanner: Scanner,
    directory: Directory,
    stop: CancellationToken,
}

impl World {
    async fn start() -> Self {
        let clock = ManualClock::new(Timestamp::from_millis(1_000_000));
        let store_clock = clock.clone();
        let store = Arc::new(EmbeddedStore::in_memory_with(Arc::new(move || store_clock.now())).unwrap());
        store.migrate(2).await.unwrap();
        for shard in 0..2 {
            assert!(store.acquire_lease(ShardId(shard), "history", "http://history", 3_600_000).await.unwrap());
        }
        let stop = CancellationToken::new();
        let directory = Directory::start(store.clone(), Arc::new(clock.clone()), DirectoryOptions::default(), stop.clone()).await.unwrap();
        let me = Member { service: ServiceKind::TimerScanner, process_id: "me".into(), address: "http://me".into() };
        directory.announce(me).await.unwrap();
        let options = Options {
            horizon: Duration::from_secs(10),
            busy_interval: Duration::from_secs(1),
            idle_interval: Duration::from_secs(5),
            scan_limit: 100,
            max_armed: 1_000,
        };
        let owner = Arc::new(FakeOwner::default());
        let scanner = Scanner::new("me".into(), store.clone(), owner.clone(), directory.clone(), Arc::new(clock.clone()), options);
        let world = Self { clock, store, owner, scanner, directory, stop };
        let (running, stop) = (world.scanner.clone(), world.stop.clone());
        drop(harvest_runtime::spawn("scanner", async move { running.run(stop).await }));
        world.settle().await;
        world
    }

    async fn settle(&self) {
        for _ in 0..60 {
            tokio::task::yield_now().await;
        }
    }

    async fn pass(&self, millis: u64) {
        for _ in 0..millis / 10 {
            self.clock.advance(Duration::from_millis(10));
            self.settle().await;
        }
    }

    /// Moves the clock until the owner has been told of a run, at most this long; returns the time.
    async fn told_at(&self, number: u64, limit_ms: u64) -> Option<i64> {
        for _ in 0..limit_ms / 10 {
            if self.owner.told.lock().unwrap().iter().any(|(_, _, ids)| ids.contains(&id(number))) {
                return Some(self.clock.now().as_millis());
            }
            self.pass(10).await;
        }
        None
    }

    fn told_count(&self) -> usize {
        self.owner.told.lock().unwrap().iter().map(|(_, _, ids)| ids.len()).sum()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test]
async fn a_due_row_reaches_its_owner_at_its_time_though_nobody_announced_it() {
    let world = World::start().await;
    let mut owner = Owner::of(world.store.as_ref(), 1).await;
    owner.commit(Batch { due_new: vec![due(1, 1_008_000), due(2, 1_030_000)], ..Batch::default() }).await;
    assert_eq!(world.told_at(1, 9_000).await, Some(1_008_000));
    assert_eq!(world.owner.told.lock().unwrap()[0], ("http://history".to_owned(), 1, vec![id(1)]));
    owner.commit(Batch { due_gone: vec![id(1)], ..Batch::default() }).await;
    assert_eq!(world.told_at(2, 30_000).await, Some(1_030_000));
    assert_eq!(world.told_count(), 2, "a row that is gone is not told again");
}

#[tokio::test]
async fn an_announced_deadline_is_exact_and_due_ones_travel_together() {
    let world = World::start().await;
    world.scanner.announce(ShardId(0), (1..=700).map(|number| (id(number), Timestamp::from_millis(1_000_500))));
    world.pass(490).await;
    assert_eq!(world.told_count(), 0);
    world.pass(10).await;
    let sizes: Vec<usize> = world.owner.told.lock().unwrap().iter().map(|(_, _, ids)| ids.len()).collect();
    assert_eq!(sizes, [500, 200]);
}

#[tokio::test]
async fn a_row_that_stays_is_told_again_and_an_owner_that_is_down_is_tried_until_it_is_back() {
    let world = World::start().await;
    let mut owner = Owner::of(world.store.as_ref(), 1).await;
    world.owner.down.store(true, Ordering::Relaxed);
    owner.commit(Batch { due_new: vec![due(1, 1_001_000)], ..Batch::default() }).await;
    world.pass(20_000).await;
    assert_eq!(world.told_count(), 0);
    world.owner.down.store(false, Ordering::Relaxed);
    let back = world.clock.now().as_millis();
    assert!(world.told_at(1, 2_000).await.unwrap() <= back + 1_050);
    world.pass(10_000).await;
    assert!((2..=5).contains(&world.told_count()), "{}", world.told_count());
}

#[tokio::test]
async fn two_scanners_share_the_shards_and_one_takes_over_what_the_other_leaves() {
    let world = World::start().await;
    let other = Member { service: ServiceKind::TimerScanner, process_id: "other".into(), address: "http://other".into() };
    for number in 0..20 {
        let other = Member { process_id: format!("other-{number}"), ..other.clone() };
        world.store.announce_member(&other, 6_000).await.unwrap();
    }
    world.pass(2_000).await;
    let mine = world.scanner.state().shards.clone();
    let placed = |shard: u32| world.directory.place(ServiceKind::TimerScanner, &placement::shard(ShardId(shard))).unwrap().process_id == "me";
    assert_eq!(mine, (0..2).filter(|shard| placed(*shard)).map(ShardId).collect());
    assert!(mine.len() < 2, "twenty others have taken at least one of two shards");
    world.pass(8_000).await;
    assert_eq!(world.scanner.state().shards.len(), 2);
}
