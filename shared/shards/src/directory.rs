//! The process's view of the fleet, kept fresh in the background, and its own place in the membership.

use crate::snapshot::{LeaseView, Owner, Snapshot};
use arc_swap::ArcSwap;
use harvest_ids::{ShardId, Slot};
use harvest_persistence::control::{DirectoryStore, Member, ServiceKind};
use harvest_persistence::error::StoreError;
use harvest_runtime::{Clock, Health};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often what is read. Each refresh is one statement, and an idle fleet of ten processes may send 20 a second in all.
#[derive(Debug, Clone)]
pub struct DirectoryOptions {
    /// How often this process announces itself and lists the others.
    pub member_interval: Duration,
    /// How long an announcement holds. Above three intervals, so that one slow statement makes nobody look dead.
    pub member_ttl: Duration,
    /// How often leases are read; `None` for services that route nothing to shards.
    pub lease_interval: Option<Duration>,
    /// How often the slot map is read.
    pub slot_map_interval: Duration,
    /// The least time between two reads asked for by [`Directory::refresh_now`].
    pub min_gap: Duration,
    /// How long a process that could not be reached is avoided in [`Directory::place`].
    pub suspicion: Duration,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            member_interval: Duration::from_millis(1_500),
            member_ttl: Duration::from_secs(5),
            lease_interval: Some(Duration::from_secs(2)),
            slot_map_interval: Duration::from_secs(30),
            min_gap: Duration::from_millis(50),
            suspicion: Duration::from_secs(3),
        }
    }
}

/// How the reading of the slot map is called in logs.
const SLOT_MAP: &str = "slot map";
/// The part of readiness that says whether the store answers.
const HEALTH_PART: &str = "store";

/// The view. Cheap to clone; all clones share it.
#[derive(Clone)]
pub struct Directory {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn DirectoryStore>,
    clock: Arc<dyn Clock>,
    options: DirectoryOptions,
    snapshot: ArcSwap<Snapshot>,
    /// Serialises replacing the snapshot.
    writing: Mutex<Times>,
    /// Serialises statements, so that those who wait find what they asked for already read.
    reading_members: tokio::sync::Mutex<()>,
    reading_leases: tokio::sync::Mutex<()>,
    announced: Mutex<Vec<Member>>,
    changes: watch::Sender<u64>,
    lease_reads: watch::Sender<u64>,
    /// Who is told whether the store answers.
    health: OnceLock<Health>,
    /// Ends the background without leaving the membership: a killed process, in tests.
    #[cfg(test)]
    frozen: CancellationToken,
}

/// When what was last read, on the monotonic clock.
#[derive(Debug, Default)]
struct Times {
    members: Option<Duration>,
    leases: Option<Duration>,
    slot_map: Duration,
    /// What could not be read (or, for the members, announced) at last try: with a full disk some of it works.
    failing: BTreeSet<&'static str>,
    /// Until then no member is forgotten: after an outage of the store all announcements look old though everybody lives.
    keep_members_until: Duration,
    /// When the store answered again after it had not.
    recovered_at: Option<Duration>,
}

impl Times {
    /// Whether the store answers. The slot map is left out: it is read so rarely that its failure says nothing about now.
    fn answers(&self) -> bool {
        self.failing.iter().all(|what| *what == SLOT_MAP)
    }
}

/// Whether a read must keep its distance from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    None,
    Minimal,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this lock")
}

impl Directory {
    /// Reads the fleet once and then keeps the view fresh until `shutdown`, when it removes this process's members.
    ///
    /// # Errors
    /// When the first read fails: a process that knows nothing cannot serve.
    pub async fn start(
        store: Arc<dyn DirectoryStore>,
        clock: Arc<dyn Clock>,
        options: DirectoryOptions,
        shutdown: CancellationToken,
    ) -> Result<Self, StoreError> {
        let shared = Shared {
            store,
            clock,
            options,
            snapshot: ArcSwap::default(),
            writing: Mutex::default(),
            reading_members: tokio::sync::Mutex::default(),
            reading_leases: tokio::sync::Mutex::default(),
            announced: Mutex::default(),
            changes: watch::channel(0).0,
            lease_reads: watch::channel(0).0,
            health: OnceLock::new(),
            #[cfg(test)]
            frozen: CancellationToken::new(),
        };
        let directory = Self { shared: Arc::new(shared) };
        directory.read_slot_map().await?;
        directory.read_members(Gap::None).await?;
        directory.read_leases(Gap::None).await?;
        drop(harvest_runtime::spawn("directory", directory.clone().run(shutdown)));
        Ok(directory)
    }

    /// Tells `health`, as the part `store`, whether members and leases can be read, from now on. A later call changes nothing.
    pub fn tell(&self, health: Health) {
        let health = self.shared.health.get_or_init(|| health);
        health.set(HEALTH_PART, lock(&self.shared.writing).answers());
    }

    /// Makes this process known to the fleet as `member`, now and until the shutdown.
    ///
    /// # Errors
    /// When the store cannot be written; the background keeps trying.
    pub async fn announce(&self, member: Member) -> Result<(), StoreError> {
        lock(&self.shared.announced).push(member);
        self.read_members(Gap::None).await
    }

    /// Removes a member of this process from the fleet.
    ///
    /// # Errors
    /// When the store cannot be written: the announcement then runs out by itself.
    pub async fn leave(&self, process_id: &str) -> Result<(), StoreError> {
        lock(&self.shared.announced).retain(|member| member.process_id != process_id);
        let _no_announcement_in_flight = self.shared.reading_members.lock().await;
        self.shared.store.remove_member(process_id).await
    }

    /// The view at this moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// The shard of a slot.
    pub fn shard_of(&self, slot: Slot) -> Option<ShardId> {
        self.shared.snapshot.load().shard_of(slot)
    }

    /// The believed owner of a shard.
    pub fn owner(&self, shard: ShardId) -> Option<Owner> {
        self.shared.snapshot.load().owner(shard).cloned()
    }

    /// Live processes of a service.
    pub fn members(&self, service: ServiceKind) -> Vec<Member> {
        self.shared.snapshot.load().members(service).cloned().collect()
    }

    /// The live process of a service that has `key`, by rendezvous hash.
    pub fn place(&self, service: ServiceKind, key: &str) -> Option<Member> {
        self.shared.snapshot.load().place(service, key).cloned()
    }

    /// A receiver that sees a new number whenever members, owners or the slot map have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// A receiver that sees a new number whenever leases have been read.
    pub(crate) fn lease_reads(&self) -> watch::Receiver<u64> {
        self.shared.lease_reads.subscribe()
    }

    /// When the store answered again after its last outage, on the monotonic clock.
    pub(crate) fn recovered_at(&self) -> Option<Duration> {
        lock(&self.shared.writing).recovered_at
    }

    /// How long an announcement of a member holds.
    pub(crate) fn member_ttl(&self) -> Duration {
        self.shared.options.member_ttl
    }

    /// Takes the hint of a not-owner reply: `address` serves the shard. The next read of the leases has the last word.
    pub fn hint(&self, shard: ShardId, address: &str) {
        self.update(|snapshot, _| {
            let process_id = snapshot.members.iter().find(|member| member.address == address).map(|member| member.process_id.clone());
            let epoch = snapshot.owners.get(&shard).map(|owner| owner.epoch).unwrap_or_default();
            snapshot.owners.insert(shard, Owner { process_id: process_id.unwrap_or_default(), address: address.to_owned(), epoch });
        });
    }

    /// Takes the word of a process that has just taken a shard over; the next read of the leases has the last word. False when a later
    /// epoch of the shard is known: then nothing changes.
    pub fn taken_over(&self, shard: ShardId, owner: Owner) -> bool {
        let mut newest = true;
        self.update(|snapshot, _| {
            newest = snapshot.owners.get(&shard).is_none_or(|known| known.epoch <= owner.epoch);
            if !newest {
                return;
            }
            // The lease too: owners are computed from the leases whenever members are read.
            if let Some(LeaseView { lease, .. }) = snapshot.leases.get_mut(&shard) {
                (lease.owner, lease.address) = (Some(owner.process_id.clone()), Some(owner.address.clone()));
                lease.epoch = owner.epoch;
            }
            snapshot.owners.insert(shard, owner);
        });
        newest
    }

    /// Says that a process refused a connection: [`Directory::place`] avoids it for a while. Its leases hold as long as before.
    pub fn suspect(&self, process_id: &str) {
        let until = self.shared.clock.monotonic() + self.shared.options.suspicion;
        self.update(|snapshot, _| _ = snapshot.suspects.insert(process_id.to_owned(), until));
    }

    /// Reads members and leases now. Calls at the same time share one read, and there is at least the minimal gap between two.
    ///
    /// # Errors
    /// When the store cannot be read: the last view stays.
    pub async fn refresh_now(&self) -> Result<(), StoreError> {
        let (members, leases) = tokio::join!(self.read_members(Gap::Minimal), self.read_leases(Gap::Minimal));
        members.and(leases)
    }

    /// Reads leases alone, and at once: for the lease keeper, which has a schedule of its own.
    pub(crate) async fn refresh_leases(&self) -> Result<(), StoreError> {
        self.read_leases(Gap::None).await
    }

    #[cfg(test)]
    pub(crate) fn freeze(&self) {
        self.shared.frozen.cancel();
    }

    /// Reads members alone, and at once: for the lease keeper before it moves anything.
    pub(crate) async fn refresh_members(&self) -> Result<(), StoreError> {
        self.read_members(Gap::None).await
    }

    async fn run(self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.shared.clock.sleep(self.until_next_read()) => {}
            }
            #[cfg(test)]
            if self.shared.frozen.is_cancelled() {
                return;
            }
            let now = self.shared.clock.monotonic();
            let (members, leases, slot_map) = self.due(now);
            // Failures are kept track of, and logged once an outage, where they happen.
            if members && self.read_members(Gap::None).await.is_err() {
                continue;
            }
            if leases && self.read_leases(Gap::None).await.is_err() {
                continue;
            }
            if slot_map && self.read_slot_map().await.is_err() {
                continue;
            }
            self.forget_suspects(now);
        }
        let announced = std::mem::take(&mut *lock(&self.shared.announced));
        for member in announced {
            if let Err(error) = self.leave(&member.process_id).await {
                tracing::warn!(%error, process_id = member.process_id, "could not leave the membership: it runs out by itself");
            }
        }
    }

    fn next_reads(&self) -> [Option<Duration>; 3] {
        let (options, times) = (&self.shared.options, lock(&self.shared.writing));
        let members = times.members.map_or(Duration::ZERO, |at| at + options.member_interval);
        let leases = options.lease_interval.map(|interval| times.leases.map_or(Duration::ZERO, |at| at + interval));
        [Some(members), leases, Some(times.slot_map + options.slot_map_interval)]
    }

    fn until_next_read(&self) -> Duration {
        let next = self.next_reads().into_iter().flatten().min().expect("members are always read");
        next.saturating_sub(self.shared.clock.monotonic()).max(Duration::from_millis(1))
    }

    fn due(&self, now: Duration) -> (bool, bool, bool) {
        let [members, leases, slot_map] = self.next_reads().map(|next| next.is_some_and(|next| next <= now));
        (members, leases, slot_map)
    }

    /// Waits for the gap since the last read of its kind and returns the time; `None` when one began after `asked`.
    async fn wait_turn(&self, asked: Duration, last: Option<Duration>, gap: Gap) -> Option<Duration> {
        if let Some(last) = last {
            if last > asked {
                return None;
            }
            let wait = (last + self.shared.options.min_gap).saturating_sub(self.shared.clock.monotonic());
            if gap == Gap::Minimal && !wait.is_zero() {
                self.shared.clock.sleep(wait).await;
            }
        }
        Some(self.shared.clock.monotonic())
    }

    async fn read_members(&self, gap: Gap) -> Result<(), StoreError> {
        let asked = self.shared.clock.monotonic();
        let _one_at_a_time = self.shared.reading_members.lock().await;
        let last = lock(&self.shared.writing).members;
        let Some(began) = self.wait_turn(asked, last, gap).await else { return Ok(()) };
        lock(&self.shared.writing).members = Some(began);
        let announced = lock(&self.shared.announced).clone();
        let read = self.check_in(&announced).await;
        let members = self.note("members", read)?;
        self.update(|snapshot, times| {
            let mut members: BTreeSet<Member> = members.into_iter().chain(announced).collect();
            if began < times.keep_members_until {
                members.extend(snapshot.members.iter().cloned());
            }
            snapshot.members = members;
            snapshot.owners = Snapshot::owners_of(&snapshot.leases);
        });
        Ok(())
    }

    /// Announces all members of this process and lists the fleet's.
    async fn check_in(&self, announced: &[Member]) -> Result<Vec<Member>, StoreError> {
        let ttl_ms = u64::try_from(self.shared.options.member_ttl.as_millis()).unwrap_or(u64::MAX);
        let Some((last, others)) = announced.split_last() else { return self.shared.store.members().await };
        for member in others {
            self.shared.store.announce_member(member, ttl_ms).await?;
        }
        self.shared.store.check_in(last, ttl_ms).await
    }

    async fn read_leases(&self, gap: Gap) -> Result<(), StoreError> {
        let asked = self.shared.clock.monotonic();
        let _one_at_a_time = self.shared.reading_leases.lock().await;
        let last = lock(&self.shared.writing).leases;
        let Some(began) = self.wait_turn(asked, last, gap).await else { return Ok(()) };
        lock(&self.shared.writing).leases = Some(began);
        let read = self.shared.store.leases().await;
        let leases = self.note("leases", read)?;
        self.update(|snapshot, _| {
            let view = |lease: harvest_persistence::control::Lease| {
                let remaining = Duration::from_millis(u64::try_from(lease.remaining_ms).unwrap_or(0));
                (lease.shard_id, LeaseView { lease, expires_at: began + remaining })
            };
            snapshot.leases = leases.into_iter().map(view).collect();
            snapshot.leases_read_at = began;
            snapshot.owners = Snapshot::owners_of(&snapshot.leases);
        });
        self.shared.lease_reads.send_modify(|reads| *reads += 1);
        Ok(())
    }

    async fn read_slot_map(&self) -> Result<(), StoreError> {
        lock(&self.shared.writing).slot_map = self.shared.clock.monotonic();
        let read = self.shared.store.slot_map().await;
        let (version, slots) = self.note(SLOT_MAP, read)?;
        if slots.len() != usize::from(harvest_ids::SLOT_COUNT) {
            return Err(StoreError::Corrupt(format!("the slot map has {} slots instead of {}", slots.len(), harvest_ids::SLOT_COUNT)));
        }
        self.update(|snapshot, _| {
            if version > snapshot.slot_map_version || snapshot.slots.is_empty() {
                (snapshot.slot_map_version, snapshot.slots) = (version, slots.into());
            }
        });
        Ok(())
    }

    /// Keeps track of outages of the store: logs their beginning and end, once each.
    fn note<T>(&self, what: &'static str, read: Result<T, StoreError>) -> Result<T, StoreError> {
        let mut times = lock(&self.shared.writing);
        let answered = times.answers();
        match &read {
            Ok(_) if times.failing.remove(what) => {
                let now = self.shared.clock.monotonic();
                times.keep_members_until = now + self.shared.options.member_ttl;
                times.recovered_at = Some(now);
                if times.failing.is_empty() {
                    tracing::info!("the directory can be read again");
                }
            }
            Err(error) if times.failing.insert(what) && times.failing.len() == 1 => {
                tracing::warn!(%error, what, "the directory cannot be read: the last view stays");
            }
            _ => {}
        }
        if times.answers() != answered
            && let Some(health) = self.shared.health.get()
        {
            health.set(HEALTH_PART, !answered);
        }
        drop(times);
        read
    }

    fn forget_suspects(&self, now: Duration) {
        if self.shared.snapshot.load().suspects.values().any(|until| *until <= now) {
            self.update(|snapshot, _| snapshot.suspects.retain(|_, until| *until > now));
        }
    }

    fn update(&self, change: impl FnOnce(&mut Snapshot, &mut Times)) {
        let mut times = lock(&self.shared.writing);
        let before = self.shared.snapshot.load_full();
        let mut after = Snapshot::clone(&before);
        change(&mut after, &mut times);
        let changed = !after.routes_like(&before);
        self.shared.snapshot.store(Arc::new(after));
        drop(times);
        if changed {
            self.shared.changes.send_modify(|version| *version += 1);
        }
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let snapshot = self.snapshot();
        let members: BTreeMap<_, _> = snapshot.members.iter().map(|member| (&member.process_id, member.service.as_str())).collect();
        f.debug_struct("Directory").field("members", &members).field("owners", &snapshot.owners).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
