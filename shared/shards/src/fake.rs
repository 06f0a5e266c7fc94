//! A directory store in memory on the manual clock, and a host that only notes what is open: for the tests of this crate.

use crate::{Directory, DirectoryOptions, Handed, HostError, LeaseKeeper, LeaseOptions, ShardHost};
use async_trait::async_trait;
use harvest_ids::{Epoch, SLOT_COUNT, ShardId, Timestamp};
use harvest_persistence::control::{DirectoryStore, Lease, Member, ServiceKind};
use harvest_persistence::error::StoreError;
use harvest_runtime::{Clock as _, ManualClock, OwnedTask};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Default)]
struct Row {
    owner: Option<(String, String)>,
    until: Duration,
    epoch: u64,
}

#[derive(Debug)]
pub(crate) struct FakeStore {
    clock: ManualClock,
    rows: Mutex<BTreeMap<ShardId, Row>>,
    members: Mutex<BTreeMap<String, (Member, Duration)>>,
    pub(crate) failing: AtomicBool,
    pub(crate) statements: AtomicU64,
    /// How long asking for a lease takes, in ms.
    pub(crate) acquire_ms: AtomicU64,
    /// What its wall clock shows at the beginning of the manual clock.
    wall_at_start: AtomicI64,
}

impl FakeStore {
    pub(crate) fn new(clock: ManualClock, shards: u32) -> Arc<Self> {
        let rows = Mutex::new((0..shards).map(|shard| (ShardId(shard), Row::default())).collect());
        Arc::new(Self {
            clock,
            rows,
            members: Mutex::default(),
            failing: AtomicBool::new(false),
            statements: AtomicU64::new(0),
            acquire_ms: AtomicU64::new(0),
            wall_at_start: AtomicI64::new(0),
        })
    }

    /// What the store's own clock shows.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.wall_at_start.load(Ordering::Relaxed) + self.elapsed_ms())
    }

    /// Sets it.
    pub(crate) fn set_wall(&self, millis: i64) {
        self.wall_at_start.store(millis - self.elapsed_ms(), Ordering::Relaxed);
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.clock.monotonic().as_millis()).unwrap()
    }

    fn statement(&self) -> Result<Duration, StoreError> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        if self.failing.load(Ordering::Relaxed) { Err(StoreError::Unavailable("switched off".into())) } else { Ok(self.clock.monotonic()) }
    }
}

fn ttl(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[async_trait]
impl DirectoryStore for FakeStore {
    async fn announce_member(&self, member: &Member, ttl_ms: u64) -> Result<(), StoreError> {
        let now = self.statement()?;
        self.members.lock().unwrap().insert(member.process_id.clone(), (member.clone(), now + ttl(ttl_ms)));
        Ok(())
    }
    async fn check_in(&self, member: &Member, ttl_ms: u64) -> Result<Vec<Member>, StoreError> {
        self.announce_member(member, ttl_ms).await?;
        self.statements.fetch_sub(1, Ordering::Relaxed);
        self.members().await
    }
    async fn now(&self) -> Result<Option<Timestamp>, StoreError> {
        self.statement()?;
        Ok(Some(self.wall()))
    }
    async fn remove_member(&self, process_id: &str) -> Result<(), StoreError> {
        self.statement()?;
        self.members.lock().unwrap().remove(process_id);
        Ok(())
    }
    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let now = self.statement()?;
        Ok(self.members.lock().unwrap().values().filter(|(_, until)| *until > now).map(|(member, _)| member.clone()).collect())
    }
    async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        let now = self.statement()?;
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap();
        let lease = |(shard, row): (&ShardId, &Row)| Lease {
            shard_id: *shard,
            owner: row.owner.clone().map(|(owner, _)| owner),
            address: row.owner.clone().map(|(_, address)| address),
            remaining_ms: millis(row.until) - millis(now),
            epoch: Epoch(row.epoch),
        };
        Ok(self.rows.lock().unwrap().iter().map(lease).collect())
    }
    async fn renew_leases(&self, process_id: &str, ttl_ms: u64) -> Result<Vec<ShardId>, StoreError> {
        let now = self.statement()?;
        let mut rows = self.rows.lock().unwrap();
        let mine = rows.iter_mut().filter(|(_, row)| row.owner.as_ref().is_some_and(|(owner, _)| owner == process_id));
        Ok(mine.map(|(shard, row)| (*shard, row.until = now + ttl(ttl_ms)).0).collect())
    }
    async fn acquire_lease(&self, shard_id: ShardId, process_id: &str, address: &str, ttl_ms: u64) -> Result<bool, StoreError> {
        let takes = self.acquire_ms.load(Ordering::Relaxed);
        if takes > 0 {
            self.clock.sleep(Duration::from_millis(takes)).await;
        }
        let now = self.statement()?;
        let mut rows = self.rows.lock().unwrap();
        let row = rows.get_mut(&shard_id).unwrap();
        if row.until > now && row.owner.is_some() {
            return Ok(false);
        }
        *row = Row { owner: Some((process_id.to_owned(), address.to_owned())), until: now + ttl(ttl_ms), epoch: row.epoch };
        Ok(true)
    }
    async fn release_lease(&self, shard_id: ShardId, process_id: &str) -> Result<(), StoreError> {
        let now = self.statement()?;
        let mut rows = self.rows.lock().unwrap();
        let row = rows.get_mut(&shard_id).unwrap();
        if row.owner.as_ref().is_some_and(|(owner, _)| owner == process_id) {
            *row = Row { owner: None, until: now, epoch: row.epoch };
        }
        Ok(())
    }
    async fn transfer_lease(&self, shard_id: ShardId, process_id: &str, to: &Member, ttl_ms: u64) -> Result<bool, StoreError> {
        let now = self.statement()?;
        let mut rows = self.rows.lock().unwrap();
        let row = rows.get_mut(&shard_id).unwrap();
        let mine = row.owner.as_ref().is_some_and(|(owner, _)| owner == process_id);
        if mine {
            *row = Row { owner: Some((to.process_id.clone(), to.address.clone())), until: now + ttl(ttl_ms), epoch: row.epoch };
        }
        Ok(mine)
    }
    async fn slot_map(&self) -> Result<(u64, Vec<ShardId>), StoreError> {
        self.statement()?;
        let shards = u32::try_from(self.rows.lock().unwrap().len()).unwrap();
        Ok((1, (0..u32::from(SLOT_COUNT)).map(|slot| ShardId(slot % shards)).collect()))
    }
}

/// Notes what is open; opening raises the shard's epoch in the store.
#[derive(Debug)]
pub(crate) struct FakeHost {
    store: Arc<FakeStore>,
    pub(crate) open: Mutex<BTreeMap<ShardId, u64>>,
    doors: Doors,
}

/// Where shards are handed to each process.
type Doors = Arc<Mutex<BTreeMap<String, Handed>>>;

#[async_trait]
impl ShardHost for FakeHost {
    async fn open(&self, shard: ShardId) -> Result<(), HostError> {
        self.store.statement().map_err(|error| HostError(error.to_string()))?;
        let mut rows = self.store.rows.lock().unwrap();
        let row = rows.get_mut(&shard).unwrap();
        row.epoch += 1;
        self.open.lock().unwrap().insert(shard, row.epoch);
        Ok(())
    }
    async fn close(&self, shard: ShardId) {
        self.open.lock().unwrap().remove(&shard);
    }
    async fn hand_over(&self, shard: ShardId, successor: &Member) {
        let door = self.doors.lock().unwrap().get(&successor.process_id).cloned();
        if let Some(door) = door {
            door.take(shard).await;
        }
    }
    fn owned(&self) -> Vec<ShardId> {
        self.open.lock().unwrap().keys().copied().collect()
    }
}

/// A history process: directory, keeper, host.
pub(crate) struct Process {
    pub(crate) directory: Directory,
    pub(crate) host: Arc<FakeHost>,
    pub(crate) keeper: OwnedTask<()>,
    pub(crate) stop: CancellationToken,
}

/// A fleet of history processes on one store and one clock.
pub(crate) struct Fleet {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<FakeStore>,
    /// One that is taken out is told nothing.
    pub(crate) doors: Doors,
}

impl Fleet {
    pub(crate) fn new(shards: u32) -> Self {
        let clock = ManualClock::new(Timestamp::from_millis(1_000_000));
        Self { store: FakeStore::new(clock.clone(), shards), clock, doors: Doors::default() }
    }

    pub(crate) async fn directory(&self, stop: CancellationToken) -> Directory {
        Directory::start(self.store.clone(), Arc::new(self.clock.clone()), DirectoryOptions::default(), stop).await.unwrap()
    }

    pub(crate) async fn start(&self, name: &str) -> Process {
        let stop = CancellationToken::new();
        let directory = self.directory(stop.clone()).await;
        let me = Member { service: ServiceKind::History, process_id: name.to_owned(), address: format!("http://{name}") };
        directory.announce(me.clone()).await.unwrap();
        let host = Arc::new(FakeHost { store: self.store.clone(), open: Mutex::default(), doors: self.doors.clone() });
        let keeper = LeaseKeeper::new(directory.clone(), self.store.clone(), Arc::new(self.clock.clone()), host.clone(), me, LeaseOptions::default());
        self.doors.lock().unwrap().insert(name.to_owned(), keeper.handed());
        let keeper = harvest_runtime::spawn_owned("keeper", keeper.run(stop.clone()));
        settle().await;
        Process { directory, host, keeper, stop }
    }

    /// Moves the clock in small steps, letting everybody act at each.
    pub(crate) async fn pass(&self, span: Duration) {
        let step = Duration::from_millis(10);
        for _ in 0..span.as_millis() / step.as_millis() {
            self.clock.advance(step);
            settle().await;
        }
    }

    /// Moves the clock until `done`, at most `limit`; returns how long it took.
    pub(crate) async fn until(&self, limit: Duration, done: impl Fn() -> bool) -> Option<Duration> {
        let start = self.clock.monotonic();
        while !done() {
            if self.clock.monotonic() - start >= limit {
                return None;
            }
            self.pass(Duration::from_millis(10)).await;
        }
        Some(self.clock.monotonic() - start)
    }
}

impl Process {
    /// The shards that are open here.
    pub(crate) fn shards(&self) -> BTreeSet<ShardId> {
        self.host.owned().into_iter().collect()
    }

    /// As kill -9: it acts no more, and nothing is cleaned up.
    pub(crate) fn kill(self) -> BTreeSet<ShardId> {
        let shards = self.shards();
        self.keeper.abort();
        self.directory.freeze();
        shards
    }
}

/// Lets all tasks run until they wait for the clock. Everything here is on one thread and in memory, so that a bounded number of turns does.
pub(crate) async fn settle() {
    for _ in 0..60 {
        tokio::task::yield_now().await;
    }
}
