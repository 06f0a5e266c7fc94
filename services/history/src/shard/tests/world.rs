//! The seeded world: several shards, workers that run deterministic workflow code, clients, a lossy network, and everything that can go
//! wrong, in one thread on a clock that jumps. Then the faults stop, every run must close, and the records are judged.
//!
//! `HARVEST_SEEDS=1000` runs so many seeds; `HARVEST_SEED=17` replays one and prints its trace.

mod chaos;
mod client;
mod dice;
mod ledger;
mod net;
mod program;
mod verdict;
mod worker;

use super::clock::TestClock;
use super::faulty::{Faults, Faulty, Pace};
use crate::shard::ShardHandle;
use crate::shard::actor::{ShardConfig, ShardDeps, Stopper, Tuning, open};
use crate::shard::memory::Memory;
use dice::Dice;
use harvest_ids::ShardId;
use harvest_persistence::embedded::EmbeddedStore;
use harvest_persistence::store::ShardStore;
use harvest_runtime::{Clock, SeededIds};
use ledger::Ledger;
use net::Net;
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use worker::Session;

/// Shards of a world.
const SHARDS: u32 = 3;
/// For how long things go wrong.
const FAULTS_FOR: Duration = Duration::from_secs(15);
/// By when every run must have closed: the longest back-offs are five minutes.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Seeds of a normal test run.
const SEEDS: u64 = 30;

/// One owner of a shard, present or past.
struct Owner {
    handle: ShardHandle,
    stopper: Option<Stopper>,
    faults: Arc<Faults>,
    _config: watch::Sender<Arc<ShardConfig>>,
}

/// Everything.
struct World {
    store: Arc<dyn ShardStore>,
    clock: Arc<TestClock>,
    ids: Arc<SeededIds>,
    dice: Dice,
    net: Net,
    ledger: Mutex<Ledger>,
    /// All owners of each shard, the present one last.
    owners: Mutex<BTreeMap<ShardId, Vec<Owner>>>,
    sessions: Mutex<Vec<Arc<Session>>>,
    /// Nothing goes wrong any more.
    calm: AtomicBool,
    trace: Mutex<Trace>,
}

#[derive(Default)]
struct Trace {
    hash: xxhash_rust::xxh3::Xxh3Default,
    printed: bool,
    lines: usize,
}

impl World {
    async fn new(seed: u64, printed: bool) -> Arc<Self> {
        let clock = Arc::new(TestClock::new());
        let time = clock.clone();
        let store = EmbeddedStore::in_memory_with(Arc::new(move || time.now())).unwrap();
        store.migrate(SHARDS).await.unwrap();
        Arc::new(Self {
            store: Arc::new(store),
            clock,
            ids: Arc::new(SeededIds::new(seed)),
            dice: Dice::new(seed ^ 0x5eed),
            net: Net::default(),
            ledger: Mutex::default(),
            owners: Mutex::default(),
            sessions: Mutex::default(),
            calm: AtomicBool::new(false),
            trace: Mutex::new(Trace { printed, ..Trace::default() }),
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    fn owners(&self) -> MutexGuard<'_, BTreeMap<ShardId, Vec<Owner>>> {
        self.owners.lock().unwrap()
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.sessions.lock().unwrap()
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// True about once in `of`, as long as things may go wrong.
    fn mishap(&self, of: u64) -> bool {
        !self.is_calm() && self.dice.one_in(of)
    }

    fn note(&self, line: Arguments<'_>) {
        let mut trace = self.trace.lock().unwrap();
        let line = format!("{:>10.3} {line}", self.clock.monotonic().as_secs_f64());
        trace.hash.update(line.as_bytes());
        trace.lines += 1;
        if trace.printed {
            eprintln!("{line}");
        }
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep(span).await;
    }

    async fn pause(&self, most_ms: u64) {
        let millis = self.dice.below(most_ms + 1);
        self.sleep(Duration::from_millis(millis)).await;
    }

    fn shards() -> impl Iterator<Item = ShardId> {
        (0..SHARDS).map(ShardId)
    }

    /// Takes a shard over, whoever has it.
    async fn take_over(self: &Arc<Self>, shard_id: ShardId) {
        let faults = Faults::new();
        let world = self.clone();
        faults.set_pace(Pace(Box::new(move || {
            let world = world.clone();
            Box::pin(async move { world.pause(3).await })
        })));
        let store = Arc::new(Faulty { store: self.store.clone(), faults: faults.clone() });
        let (config, receiver) = watch::channel(Arc::new(ShardConfig::default()));
        let skew = i64::try_from(self.dice.below(400)).unwrap() - 200;
        // Memory is full of runs all the time: of few, or of large ones.
        let (cached_runs, memory) = if shard_id.0 == 1 { (1_000, 12_000) } else { (6, u64::MAX) };
        let tuning = Tuning { cached_runs, inbox_operations: 64, ..Tuning::default() };
        let clock = Arc::new(self.clock.skewed(skew));
        let deps = ShardDeps { store, clock, ids: self.ids.clone(), neighbours: self.clone(), config: receiver, tuning, memory: Memory::new(memory) };
        let (handle, stopper) = open(shard_id, deps).await.unwrap();
        self.note(format_args!("shard {shard_id} has a new owner"));
        let owner = Owner { handle, stopper: Some(stopper), faults, _config: config };
        self.owners().entry(shard_id).or_default().push(owner);
    }
}

/// Lives through one seed. Returns the hash of its trace.
fn live(seed: u64, printed: bool) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::new(seed, printed).await;
        for shard_id in World::shards() {
            world.take_over(shard_id).await;
        }
        worker::spawn_all(&world);
        net::spawn_all(&world);
        let clients = client::spawn_all(&world);
        chaos::run(&world, FAULTS_FOR).await;
        world.calm.store(true, Ordering::Relaxed);
        world.note(format_args!("calm"));
        let ended = tokio::time::timeout(PATIENCE, async {
            for client in clients {
                client.await.map_err(|error| error.to_string())?;
            }
            while !verdict::is_at_rest(&world).await {
                world.sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        });
        let ended = ended.await.unwrap_or_else(|_| Err("some run did not close".to_owned()));
        let verdict = verdict::judge(&world).await;
        ended.map_err(|error| format!("{error}; {verdict:?}"))?;
        verdict?;
        let trace = world.trace.lock().unwrap();
        Ok(trace.hash.digest())
    })
}

fn check(seed: u64, printed: bool) -> u64 {
    live(seed, printed).unwrap_or_else(|error| panic!("{error}\nreplay it: HARVEST_SEED={seed} cargo test -p harvest-history the_world -- --nocapture"))
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn in_every_seed_of_the_world_all_runs_close_and_what_was_acknowledged_is_true() {
    if let Some(seed) = variable("HARVEST_SEED") {
        check(seed, true);
        return;
    }
    let seeds = variable("HARVEST_SEEDS").unwrap_or(SEEDS);
    for seed in FAILED_ONCE.into_iter().chain(0..seeds) {
        check(seed, false);
        if seed % 50 == 49 {
            println!("{} of {seeds} seeds", seed + 1);
        }
    }
}

#[test]
fn the_world_repeats_itself_from_its_seed() {
    assert_eq!(check(3, false), check(3, false));
    assert_ne!(check(4, false), check(5, false));
}

/// Seeds that found something, first.
const FAILED_ONCE: [u64; 3] = [74, 270, 275];
