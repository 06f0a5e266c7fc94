//! Keeps a history process's leases: renews them, takes free shards that it should have, hands over what others should have, and hands
//! over everything at the end. One task sends all lease statements, so that they never overtake each other.

mod hand_over;

use crate::directory::Directory;
use crate::plan::{Plan, Standing, plan};
use crate::snapshot::Snapshot;
use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use harvest_ids::ShardId;
use harvest_persistence::control::{DirectoryStore, Member, ServiceKind};
use harvest_runtime::{Clock, metrics};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use hand_over::Handed;

/// How long after a lease should have expired it is looked at: whole milliseconds are lost on the way.
const EXPIRY_MARGIN: Duration = Duration::from_millis(10);

/// How many leases are asked for at a time.
const ACQUIRED_AT_ONCE: usize = 4;

/// Why a shard could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// What owns shards: the history engine.
#[async_trait]
pub trait ShardHost: Send + Sync + 'static {
    /// Takes the shard over (raises its epoch) and begins to serve it. Once this has returned, [`ShardHost::owned`] names it.
    async fn open(&self, shard: ShardId) -> Result<(), HostError>;

    /// Commits what is in flight and stops serving the shard. Harmless for one that is not open.
    async fn close(&self, shard: ShardId);

    /// Tells another process that the shard's lease is its own now: calls its [`Handed::take`]. Returns when that has, or cannot be reached.
    async fn hand_over(&self, shard: ShardId, successor: &Member);

    /// The shards that are open. One that this does not name although its lease is held has been lost to a fence, and is opened again.
    fn owned(&self) -> Vec<ShardId>;
}

/// Times of the lease protocol.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// How long a lease holds, by the database's clock.
    pub ttl: Duration,
    /// How often leases are renewed: one statement for all.
    pub renew_interval: Duration,
    /// How often leases are read when nothing is about to happen.
    pub read_interval: Duration,
    /// How often they are read while something is.
    pub eager_interval: Duration,
    /// How long a free shard is left to the process that should take it.
    pub orphan_grace: Duration,
    /// How many shards are handed over at a time.
    pub max_handovers: usize,
    /// How long handing everything over may take at the end.
    pub shutdown_timeout: Duration,
    /// How long to wait before a shard that did not open is opened again.
    pub open_retry: Duration,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(2),
            renew_interval: Duration::from_millis(700),
            read_interval: Duration::from_secs(1),
            eager_interval: Duration::from_millis(100),
            orphan_grace: Duration::from_millis(300),
            max_handovers: 4,
            shutdown_timeout: Duration::from_secs(8),
            open_retry: Duration::from_millis(300),
        }
    }
}

/// A shard whose lease this process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Held {
    Opening,
    Open,
    /// Did not open: again at this time.
    Failed(Duration),
    /// Handed over to this process, or to nobody in particular, once closed.
    Closing(Option<Member>),
    /// The lease is somebody else's already; not released.
    Dropping,
}

/// A host's task has ended.
#[derive(Debug)]
enum Done {
    Opened(ShardId, Result<(), HostError>),
    Closed(ShardId),
    /// A successor has opened what it was handed, or could not be told.
    Told,
}

/// Keeps the leases of one history process.
pub struct LeaseKeeper {
    directory: Directory,
    store: Arc<dyn DirectoryStore>,
    clock: Arc<dyn Clock>,
    host: Arc<dyn ShardHost>,
    me: Member,
    options: LeaseOptions,
    held: BTreeMap<ShardId, Held>,
    /// Processes that lost a lease lately, until when nothing is handed to them: they may be dead and still listed.
    distrusted: BTreeMap<String, Duration>,
    /// The owner of each shard as last read, and when its lease should expire.
    last_owners: BTreeMap<ShardId, (String, Duration)>,
    /// Since when a free shard has been left to others.
    orphans: BTreeMap<ShardId, Duration>,
    next_renew: Duration,
    next_read: Duration,
    renew_failing: bool,
    acquire_failing: bool,
    /// Shards that could not be opened at the last try.
    open_failing: BTreeSet<ShardId>,
    /// How many shards have been given away whose new owner has not opened them yet.
    telling: usize,
    handed: mpsc::Receiver<(ShardId, oneshot::Sender<()>)>,
    handed_sender: mpsc::Sender<(ShardId, oneshot::Sender<()>)>,
    /// Those who wait until a shard that was handed to this process is open.
    awaited: BTreeMap<ShardId, Vec<oneshot::Sender<()>>>,
    done: mpsc::Receiver<Done>,
    done_sender: mpsc::Sender<Done>,
}

impl LeaseKeeper {
    /// A keeper for `me`, which must have been announced to the directory.
    pub fn new(
        directory: Directory,
        store: Arc<dyn DirectoryStore>,
        clock: Arc<dyn Clock>,
        host: Arc<dyn ShardHost>,
        me: Member,
        options: LeaseOptions,
    ) -> Self {
        let (done_sender, done) = mpsc::channel(64);
        let (handed_sender, handed) = mpsc::channel(64);
        Self {
            directory,
            store,
            clock,
            host,
            me,
            options,
            held: BTreeMap::new(),
            distrusted: BTreeMap::new(),
            last_owners: BTreeMap::new(),
            orphans: BTreeMap::new(),
            next_renew: Duration::ZERO,
            next_read: Duration::ZERO,
            renew_failing: false,
            acquire_failing: false,
            open_failing: BTreeSet::new(),
            telling: 0,
            handed,
            handed_sender,
            awaited: BTreeMap::new(),
            done,
            done_sender,
        }
    }

    /// Where shards come in that other processes hand over to this one.
    pub fn handed(&self) -> Handed {
        Handed(self.handed_sender.clone())
    }

    /// Keeps leases until the shutdown begins, then hands all shards over and returns.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let (mut reads, mut changes) = (self.directory.lease_reads(), self.directory.changes());
        loop {
            let wait = self.next_wake().saturating_sub(self.clock.monotonic());
            let clock = self.clock.clone();
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(done) = self.done.recv() => self.on_done(done).await,
                Some((shard, opened)) = self.handed.recv() => self.take_handed(shard, opened).await,
                // Somebody else in this process read the leases, or the fleet changed. The senders live in the directory that is ours.
                _ = reads.changed() => self.act().await,
                _ = changes.changed() => self.act().await,
                () = clock.sleep(wait) => {}
            }
            self.tick().await;
            reads.borrow_and_update();
        }
        self.hand_over_all().await;
    }

    async fn tick(&mut self) {
        let now = self.clock.monotonic();
        if now >= self.next_renew {
            self.renew().await;
        }
        if now >= self.next_read {
            self.next_read = now + self.options.read_interval;
            // A failure is logged by the directory; the last view stays, and so do the leases in it.
            if self.directory.refresh_leases().await.is_ok() {
                self.act().await;
            }
        }
        let retries: Vec<_> = self.held.iter().filter(|(_, held)| matches!(held, Held::Failed(at) if *at <= now)).map(|(shard, _)| *shard).collect();
        retries.into_iter().for_each(|shard| self.open(shard));
    }

    fn next_wake(&self) -> Duration {
        let retry = self.held.values().filter_map(|held| if let Held::Failed(at) = held { Some(*at) } else { None }).min();
        retry.into_iter().fold(self.next_renew.min(self.next_read), Duration::min)
    }

    async fn renew(&mut self) {
        let now = self.clock.monotonic();
        self.next_renew = now + self.options.renew_interval;
        let renewed = match self.store.renew_leases(&self.me.process_id, millis(self.options.ttl)).await {
            Ok(renewed) => renewed,
            Err(error) => {
                if !std::mem::replace(&mut self.renew_failing, true) {
                    tracing::warn!(%error, "leases cannot be renewed; shards are served as long as their fence holds");
                }
                return;
            }
        };
        self.renew_failing = false;
        let renewed: BTreeSet<ShardId> = renewed.into_iter().collect();
        let lost: Vec<ShardId> = self.held.keys().filter(|shard| !renewed.contains(shard)).copied().collect();
        for shard in lost {
            match self.held.get(&shard) {
                Some(Held::Failed(_)) => {
                    self.held.remove(&shard);
                    self.open_failing.remove(&shard);
                }
                Some(Held::Open | Held::Closing(_)) => {
                    tracing::warn!(%shard, "lease lost: another process took it after it had expired");
                    self.close(shard, Held::Dropping);
                }
                // An open one is closed when it has opened and the next renewal misses it again.
                _ => {}
            }
        }
        let owned: BTreeSet<ShardId> = self.host.owned().into_iter().collect();
        for shard in renewed {
            match self.held.get(&shard) {
                // Taken by a statement whose answer never came, or a release that failed.
                None => self.open(shard),
                Some(Held::Open) if !owned.contains(&shard) => {
                    tracing::warn!(%shard, "shard lost to another epoch while its lease is held: opening it again");
                    self.open(shard);
                }
                _ => {}
            }
        }
    }

    /// Looks at what was last read and does what follows from it.
    async fn act(&mut self) {
        let (now, snapshot) = (self.clock.monotonic(), self.directory.snapshot());
        self.watch_owners(&snapshot, now);
        let plan = self.plan(&snapshot, now);
        self.orphans.retain(|shard, _| plan.left_to_others.contains(shard));
        let mut acquire = plan.acquire.clone();
        for shard in &plan.left_to_others {
            let since = *self.orphans.entry(*shard).or_insert(now);
            if now >= since + self.options.orphan_grace {
                acquire.push(*shard);
            }
        }
        let mut refused = false;
        acquire.retain(|shard| !self.held.contains_key(shard));
        // Several at a time: all shards of a dead owner are free at once, and each takes a round trip.
        let (store, me, ttl) = (self.store.clone(), self.me.clone(), millis(self.options.ttl));
        let asked = stream::iter(acquire).map(|shard| {
            let (store, me) = (store.clone(), me.clone());
            async move { (shard, store.acquire_lease(shard, &me.process_id, &me.address, ttl).await) }
        });
        let mut asked = asked.buffered(ACQUIRED_AT_ONCE);
        while let Some((shard, acquired)) = asked.next().await {
            match acquired {
                Ok(true) => {
                    self.acquire_failing = false;
                    tracing::info!(%shard, "lease acquired");
                    // A renewal meanwhile may have found it already.
                    if !self.held.contains_key(&shard) {
                        self.open(shard);
                    }
                }
                Ok(false) => refused = true,
                Err(error) => {
                    if !std::mem::replace(&mut self.acquire_failing, true) {
                        tracing::warn!(%shard, %error, "lease cannot be acquired");
                    }
                    break;
                }
            }
            if self.clock.monotonic() >= self.next_renew {
                self.renew().await;
            }
        }
        if !plan.hand_over.is_empty() {
            self.hand_over().await;
        }
        self.schedule_read(&snapshot, &plan, refused, now);
    }

    fn plan(&self, snapshot: &Snapshot, now: Duration) -> Plan {
        let members: BTreeSet<String> = snapshot.members(ServiceKind::History).map(|member| member.process_id.clone()).collect();
        let trusted = |name: &String| !self.distrusted.contains_key(name) && !snapshot.suspects.contains_key(name);
        let targets = members.iter().filter(|name| trusted(name)).cloned().collect();
        // After an outage of the store all leases have expired though their holders live: they renew first.
        let after_outage = self.directory.recovered_at().is_some_and(|at| now < at + self.options.ttl);
        let standing = |shard: &ShardId| {
            if self.held.get(shard).is_some_and(|held| *held != Held::Dropping) {
                return Standing::Held(self.me.process_id.clone());
            }
            let Some(view) = snapshot.lease(*shard) else { return Standing::Free };
            let holds = now < view.expires_at;
            match &view.lease.owner {
                Some(owner) if *owner != self.me.process_id && (holds || after_outage) => Standing::Held(owner.clone()),
                Some(_) | None => Standing::Free,
            }
        };
        let shards = snapshot.shards().iter().map(|shard| (*shard, standing(shard))).collect();
        plan(&self.me.process_id, &members, &targets, &shards)
    }

    /// Remembers who lost leases without having handed them over.
    fn watch_owners(&mut self, snapshot: &Snapshot, now: Duration) {
        self.distrusted.retain(|_, until| *until > now);
        let until = now + self.directory.member_ttl() + Duration::from_secs(1);
        for (shard, view) in &snapshot.leases {
            let owner = view.lease.owner.clone();
            let before = match &owner {
                Some(owner) => self.last_owners.insert(*shard, (owner.clone(), view.expires_at)),
                None => self.last_owners.remove(shard),
            };
            let expired = owner.clone().filter(|_| view.expires_at <= now);
            // One that gave its lease away held it: only an expired one can have been taken from it.
            let ran_out = before.filter(|(_, expires_at)| *expires_at <= now).map(|(before, _)| before);
            let replaced = ran_out.filter(|before| owner.as_ref().is_some_and(|owner| owner != before));
            for loser in expired.into_iter().chain(replaced).filter(|loser| *loser != self.me.process_id) {
                self.distrusted.insert(loser, until);
            }
        }
    }

    /// Reads again when the next lease of another process could expire, or soon when something is about to happen.
    fn schedule_read(&mut self, snapshot: &Snapshot, plan: &Plan, refused: bool, now: Duration) {
        let waiting = plan.left_to_others.iter().any(|shard| !self.held.contains_key(shard));
        let interval = if refused || plan.expecting || waiting { self.options.eager_interval } else { self.options.read_interval };
        let others = snapshot.leases.iter().filter(|(shard, view)| !self.held.contains_key(shard) && view.lease.owner.is_some());
        let expiry = others.map(|(_, view)| view.expires_at + EXPIRY_MARGIN).filter(|at| *at > now).min();
        self.next_read = expiry.into_iter().fold(snapshot.leases_read_at + interval, Duration::min).max(now + EXPIRY_MARGIN);
    }

    fn open(&mut self, shard: ShardId) {
        self.held.insert(shard, Held::Opening);
        self.orphans.remove(&shard);
        let (host, done) = (self.host.clone(), self.done_sender.clone());
        drop(harvest_runtime::spawn("open shard", async move {
            let result = host.open(shard).await;
            // The keeper is gone only when the shutdown has run out of time.
            drop(done.send(Done::Opened(shard, result)).await);
        }));
    }

    fn close(&mut self, shard: ShardId, as_what: Held) {
        let before = self.held.insert(shard, as_what);
        if matches!(before, Some(Held::Closing(_) | Held::Dropping)) {
            return; // its task runs already
        }
        let (host, done) = (self.host.clone(), self.done_sender.clone());
        drop(harvest_runtime::spawn("close shard", async move {
            host.close(shard).await;
            drop(done.send(Done::Closed(shard)).await);
        }));
    }

    async fn on_done(&mut self, done: Done) {
        match done {
            Done::Opened(shard, Ok(())) => {
                if self.open_failing.remove(&shard) {
                    tracing::info!(%shard, "shard is open at last");
                }
                if self.held.get(&shard) == Some(&Held::Opening) {
                    self.held.insert(shard, Held::Open);
                }
            }
            Done::Opened(shard, Err(error)) => {
                if self.open_failing.insert(shard) {
                    tracing::warn!(%shard, %error, "shard cannot be opened; it is tried again");
                }
                if self.held.get(&shard) == Some(&Held::Opening) {
                    self.held.insert(shard, Held::Failed(self.clock.monotonic() + self.options.open_retry));
                }
            }
            Done::Closed(shard) => match self.held.remove(&shard) {
                Some(Held::Closing(Some(successor))) => self.give(shard, successor).await,
                Some(Held::Closing(None)) => self.release(shard).await,
                _ => {}
            },
            Done::Told => {
                self.telling = self.telling.saturating_sub(1);
                self.next_read = self.clock.monotonic(); // there is room for the next
            }
        }
        self.awaited.retain(|shard, _| self.held.get(shard) == Some(&Held::Opening));
        let open = self.held.values().filter(|held| **held == Held::Open).count();
        metrics::SHARD_OWNED.set_count(u64::try_from(open).unwrap_or(u64::MAX), []);
    }

    async fn release(&mut self, shard: ShardId) {
        match self.store.release_lease(shard, &self.me.process_id).await {
            Ok(()) => self.next_read = self.clock.monotonic(), // the view still shows this process as the holder
            Err(error) => tracing::warn!(%shard, %error, "lease cannot be released: the next renewal finds it and the shard is opened again"),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
