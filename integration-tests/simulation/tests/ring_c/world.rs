//! What all hosts of a simulation share: the database, the bus, time, the trace, and the books of what was promised and done.

use crate::dice::{Dice, mix};
use crate::ledger::Ledger;
use harvest_fleet_config::LocalBus;
use harvest_ids::{ShardId, Timestamp};
use harvest_persistence::embedded::EmbeddedStore;
use harvest_runtime::SeededIds;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Arguments;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// Shards of the database.
pub const SHARDS: u32 = 3;
/// When the simulation begins, by the database's clock: 2026-01-01.
const BEGIN_MS: i64 = 1_767_225_600_000;
/// The host of statements whose connection was lost while they were on their way.
pub const DATABASE: &str = "database";

/// What a host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Config,
    History,
    Matching,
    TimerScanner,
    Frontend,
    Worker,
    Client,
}

/// All hosts but the database.
pub const HOSTS: [(&str, Kind); 13] = [
    ("config-1", Kind::Config),
    ("history-1", Kind::History),
    ("history-2", Kind::History),
    ("matching-1", Kind::Matching),
    ("matching-2", Kind::Matching),
    ("timer-scanner-1", Kind::TimerScanner),
    ("timer-scanner-2", Kind::TimerScanner),
    ("frontend-1", Kind::Frontend),
    ("frontend-2", Kind::Frontend),
    ("worker-1", Kind::Worker),
    ("worker-2", Kind::Worker),
    ("client-1", Kind::Client),
    ("client-2", Kind::Client),
];

/// What happens to one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Some value is not acceptable. A batch without values commits.
    Poisoned,
    /// Refused before anything is written.
    Unavailable,
    /// Written, and the answer is lost.
    UnknownLanded,
    /// Not written, and nobody knows.
    UnknownLost,
    /// The answer is lost while the statement is on its way: it lands later, unless the epoch has been raised by then.
    UnknownLate,
}

/// What is wrong with a host's way to database and bus.
#[derive(Debug, Default)]
struct Faults {
    /// Statements fail; half of them after they took effect.
    failing: bool,
    /// Statements wait.
    held: bool,
    fates: VecDeque<Fate>,
    bus_cut: bool,
    bus_loses: bool,
}

/// One machine.
pub struct Host {
    pub name: &'static str,
    pub kind: Kind,
    pub dice: Dice,
    seed: u64,
    skew_ms: AtomicI64,
    starts: AtomicU64,
    faults: Mutex<Faults>,
    released: Notify,
    stop: Mutex<CancellationToken>,
    ended: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this lock")
}

impl Host {
    fn new(seed: u64, name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            dice: Dice::new(mix(seed, name, 0)),
            seed,
            skew_ms: AtomicI64::new(0),
            starts: AtomicU64::new(0),
            faults: Mutex::default(),
            released: Notify::new(),
            stop: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// How far its wall clock is ahead.
    pub fn skew_ms(&self) -> i64 {
        self.skew_ms.load(Ordering::Relaxed)
    }

    pub fn set_skew_ms(&self, skew_ms: i64) {
        self.skew_ms.store(skew_ms, Ordering::Relaxed);
    }

    /// A new start of its process: ids of its own, and the token that asks it to end.
    pub fn started(&self) -> (Arc<SeededIds>, CancellationToken) {
        let start = self.starts.fetch_add(1, Ordering::Relaxed) + 1;
        let stop = CancellationToken::new();
        *lock(&self.stop) = stop.clone();
        self.ended.store(false, Ordering::Relaxed);
        (Arc::new(SeededIds::new(mix(self.seed, self.name, start))), stop)
    }

    /// How often its process has started.
    pub fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Asks its process to end.
    pub fn ask_to_end(&self) {
        lock(&self.stop).cancel();
    }

    pub fn is_asked_to_end(&self) -> bool {
        lock(&self.stop).is_cancelled()
    }

    /// Its process has ended.
    pub fn ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub fn set_failing(&self, failing: bool) {
        lock(&self.faults).failing = failing;
    }

    pub fn is_failing(&self) -> bool {
        lock(&self.faults).failing
    }

    pub fn hold(&self, held: bool) {
        lock(&self.faults).held = held;
        if !held {
            self.released.notify_waiters();
        }
    }

    /// Waits while statements are held.
    pub async fn pass(&self) {
        loop {
            let released = self.released.notified();
            if !lock(&self.faults).held {
                return;
            }
            released.await;
        }
    }

    pub fn script(&self, fate: Fate) {
        lock(&self.faults).fates.push_back(fate);
    }

    pub fn next_fate(&self) -> Option<Fate> {
        lock(&self.faults).fates.pop_front()
    }

    /// The bus is cut off, and then says so when it is back; or it loses messages.
    pub fn set_bus_faults(&self, cut: bool, loses: bool) {
        let mut faults = lock(&self.faults);
        (faults.bus_cut, faults.bus_loses) = (cut, loses);
    }

    pub fn bus_faults(&self) -> (bool, bool) {
        let faults = lock(&self.faults);
        (faults.bus_cut, faults.bus_loses)
    }

    fn mend(&self) {
        *lock(&self.faults) = Faults::default();
        self.released.notify_waiters();
    }
}

/// The answer of a store in memory: it does everything in the call.
pub fn inline<T>(call: impl Future<Output = T>) -> T {
    futures::FutureExt::now_or_never(call).expect("the store in memory waits for nothing")
}

/// A statement that goes on without whoever sent it.
pub type Late = futures::future::BoxFuture<'static, ()>;

/// Everything.
pub struct World {
    pub dice: Dice,
    pub store: EmbeddedStore,
    pub bus: LocalBus,
    pub hosts: BTreeMap<&'static str, Arc<Host>>,
    pub ledger: Mutex<Ledger>,
    /// Clients that have not finished.
    pub busy_clients: AtomicU64,
    pub late: mpsc::Sender<Late>,
    /// Nothing goes wrong any more.
    calm: AtomicBool,
    /// The simulation's time as of the last step, in microseconds.
    at: Arc<AtomicU64>,
    trace: Mutex<Trace>,
}

#[derive(Default)]
struct Trace {
    hash: xxhash_rust::xxh3::Xxh3Default,
    printed: bool,
    detailed: bool,
    lines: usize,
}

/// Statements without a connection at most.
const LATE: usize = 1_024;

fn elapsed(at: &AtomicU64) -> Duration {
    // On a host: its own time within the step. Elsewhere: the last step's.
    let here = tokio::runtime::Handle::try_current().ok().and_then(|_| turmoil::sim_elapsed());
    let here = here.unwrap_or_default().as_micros();
    Duration::from_micros(at.fetch_max(u64::try_from(here).unwrap_or(u64::MAX), Ordering::Relaxed).max(u64::try_from(here).unwrap_or(0)))
}

fn at(elapsed: Duration) -> Timestamp {
    Timestamp::from_millis(BEGIN_MS + i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX - BEGIN_MS))
}

impl World {
    /// A world at its beginning, and the statements that will come to go on alone.
    pub fn new(seed: u64, printed: bool) -> anyhow::Result<(Arc<Self>, mpsc::Receiver<Late>)> {
        let time = Arc::new(AtomicU64::new(0));
        let clock = time.clone();
        // One clock for the database, whoever asks: it never goes back, though hosts run one after the other within a step.
        let store = EmbeddedStore::in_memory_with(Arc::new(move || at(elapsed(&clock))))?;
        inline(store.migrate(SHARDS))?;
        let (late, statements) = mpsc::channel(LATE);
        let world = Self {
            dice: Dice::new(mix(seed, "world", 0)),
            store,
            bus: LocalBus::new(),
            hosts: HOSTS.into_iter().map(|(name, kind)| (name, Arc::new(Host::new(seed, name, kind)))).collect(),
            ledger: Mutex::default(),
            busy_clients: AtomicU64::new(0),
            late,
            calm: AtomicBool::new(false),
            at: time,
            trace: Mutex::new(Trace { printed, detailed: std::env::var_os("HARVEST_SIM_DETAILS").is_some(), ..Trace::default() }),
        };
        Ok((Arc::new(world), statements))
    }

    pub fn host(&self, name: &str) -> Arc<Host> {
        self.hosts.get(name).expect("hosts are named by the table above").clone()
    }

    pub fn hosts_of(&self, kind: Kind) -> impl Iterator<Item = &Arc<Host>> {
        self.hosts.values().filter(move |host| host.kind == kind)
    }

    pub fn shards() -> impl Iterator<Item = ShardId> {
        (0..SHARDS).map(ShardId)
    }

    /// Since the beginning. Hosts run one after the other within a step, so it can be a step less on one host than it was on another.
    pub fn elapsed(&self) -> Duration {
        let here = tokio::runtime::Handle::try_current().ok().and_then(|_| turmoil::sim_elapsed());
        here.unwrap_or_else(|| Duration::from_micros(self.at.load(Ordering::Relaxed)))
    }

    /// The true wall clock.
    pub fn now(&self) -> Timestamp {
        at(self.elapsed())
    }

    /// The simulation has made a step.
    pub fn stepped(&self, elapsed: Duration) {
        self.at.fetch_max(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// From now on nothing goes wrong with databases, buses and clocks.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
        for host in self.hosts.values() {
            host.mend();
            host.set_skew_ms(0);
        }
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: Arguments<'_>) {
        let line = format!("{:>10.3} {line}", self.elapsed().as_secs_f64());
        let mut trace = lock(&self.trace);
        trace.hash.update(line.as_bytes());
        trace.lines += 1;
        if trace.printed {
            println!("{line}");
        }
    }

    /// Prints a line that is no part of the trace, when all is to be printed.
    pub fn detail(&self, line: Arguments<'_>) {
        if lock(&self.trace).detailed {
            println!("{:>10.3}   {line}", self.elapsed().as_secs_f64());
        }
    }

    /// The trace so far, as a number, and its length.
    pub fn trace(&self) -> (u64, usize) {
        let trace = lock(&self.trace);
        (trace.hash.digest(), trace.lines)
    }
}
