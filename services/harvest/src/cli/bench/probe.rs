//! What is counted at the beginning and the end of a measurement, and the idle background that is taken off.

use super::cpu;
use anyhow::{Context as _, bail};
use harvest_persistence::measure::{Counters, Meter, Spent};
use harvest_runtime::{Clock, SystemClock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Counts everything that a measurement needs.
pub struct Probe {
    clock: Arc<SystemClock>,
    postgres: Option<Postgres>,
    redis: Option<u32>,
    processes: Vec<(&'static str, u32)>,
}

struct Postgres {
    meter: Meter,
    server: Option<u32>,
    database: String,
    url: String,
}

/// All counts of one moment.
pub struct Moment {
    at: Duration,
    cpu_s: BTreeMap<&'static str, f64>,
    counters: Option<Counters>,
}

impl Moment {
    /// When, on the monotonic clock.
    pub fn at(&self) -> Duration {
        self.at
    }
}

/// What happened between two moments.
#[derive(Debug, Default)]
pub struct Usage {
    /// How long it took, seconds.
    pub seconds: f64,
    /// CPU seconds by process.
    pub cpu_s: BTreeMap<&'static str, f64>,
    /// What Postgres counted.
    pub spent: Option<Spent>,
}

impl Usage {
    /// Adds what happened in another span.
    pub fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        for (name, used) in &other.cpu_s {
            *self.cpu_s.entry(name).or_default() += used;
        }
        if let Some(spent) = &other.spent {
            let sum = self.spent.get_or_insert_default();
            sum.commits += spent.commits;
            sum.wal_bytes += spent.wal_bytes;
            for (text, calls) in &spent.statements {
                *sum.statements.entry(text.clone()).or_default() += calls;
            }
        }
    }
}

/// Memory by process, MiB.
pub type Memory = BTreeMap<&'static str, f64>;

/// The idle background, per second.
#[derive(Debug, Default)]
pub struct Rates {
    /// Transactions that wrote.
    pub commits: f64,
    /// Bytes of WAL.
    pub wal_bytes: f64,
    /// Statements by text.
    pub statements: BTreeMap<String, f64>,
}

/// A count as a number to calculate with. Counts of a benchmark are far below 2^53.
pub fn number(count: impl TryInto<i32>) -> f64 {
    count.try_into().map_or(f64::from(i32::MAX), f64::from)
}

impl Probe {
    /// Connects to Postgres, when there is one.
    ///
    /// # Errors
    /// When the server cannot be measured.
    pub async fn connect(postgres: Option<&str>, redis: Option<u32>) -> anyhow::Result<Self> {
        let clock = Arc::new(SystemClock::new());
        let Some(url) = postgres else { return Ok(Self { clock, postgres: None, redis: None, processes: Vec::new() }) };
        let mut meter = Meter::connect(url).await?;
        // Only a server on this machine has its processes here, and only there is a parent of the same number its main process.
        let server = cpu::parent_of(meter.backend_pid().await?);
        let postgres = Some(Postgres { meter, server, database: String::new(), url: String::new() });
        Ok(Self { clock, postgres, redis, processes: Vec::new() })
    }

    /// Makes an empty database and measures that one from now on; `None` without Postgres.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn fresh_database(&mut self, name: &str) -> anyhow::Result<Option<String>> {
        let Some(postgres) = &mut self.postgres else { return Ok(None) };
        postgres.url = postgres.meter.fresh_database(name).await?;
        postgres.database = name.to_owned();
        Ok(Some(postgres.url.clone()))
    }

    /// The database that is measured.
    pub fn database_url(&self) -> Option<&str> {
        self.postgres.as_ref().map(|postgres| postgres.url.as_str())
    }

    /// The clock of all moments.
    pub fn clock(&self) -> Arc<SystemClock> {
        self.clock.clone()
    }

    /// Sets whose CPU is measured, besides Postgres, Redis and this process.
    pub fn watch(&mut self, processes: Vec<(&'static str, u32)>) {
        self.processes = processes;
    }

    /// Counts now.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn moment(&mut self) -> anyhow::Result<Moment> {
        let counters = match &mut self.postgres {
            Some(postgres) => Some(postgres.meter.read(&postgres.database).await?),
            None => None,
        };
        let mut cpu_s = BTreeMap::new();
        let servers = [("postgres", self.postgres.as_ref().and_then(|postgres| postgres.server)), ("redis", self.redis)];
        let servers = servers.into_iter().filter_map(|(name, pid)| Some((name, cpu::of_family(pid?)?)));
        let own = [("client", std::process::id())];
        let processes = self.processes.iter().copied().chain(own).filter_map(|(name, pid)| Some((name, cpu::of_process(pid)?)));
        for (name, used) in processes.chain(servers) {
            *cpu_s.entry(name).or_default() += used;
        }
        Ok(Moment { at: self.clock.monotonic(), cpu_s, counters })
    }

    /// Memory of each process in RAM, MiB. Of Postgres what is its processes' own, without what they share.
    pub fn memory_mib(&self) -> Memory {
        let own = [("client", std::process::id())];
        let mut memory = Memory::new();
        for (name, pid) in self.processes.iter().copied().chain(own).chain(self.redis.map(|pid| ("redis", pid))) {
            if let Some(used) = cpu::resident_mib(pid) {
                *memory.entry(name).or_default() += used;
            }
        }
        if let Some(used) = self.postgres.as_ref().and_then(|postgres| cpu::own_mib_of_family(postgres.server?)) {
            memory.insert("postgres", used);
        }
        memory.values_mut().for_each(|used| *used = (*used * 10.0).round() / 10.0);
        memory
    }

    /// What happened between two moments.
    ///
    /// # Errors
    /// When Postgres cannot tell.
    pub async fn usage(&mut self, from: &Moment, until: &Moment) -> anyhow::Result<Usage> {
        let spent = match (&mut self.postgres, &from.counters, &until.counters) {
            (Some(postgres), Some(from), Some(until)) => Some(postgres.meter.spent(from, until).await?),
            _ => None,
        };
        let cpu_s = until.cpu_s.iter().map(|(name, used)| (*name, used - from.cpu_s.get(name).copied().unwrap_or(0.0))).collect();
        Ok(Usage { seconds: (until.at - from.at).as_secs_f64(), cpu_s, spent })
    }

    /// Measures the background of a fleet at rest.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn idle(&mut self, settle: Duration, window: Duration) -> anyhow::Result<Rates> {
        self.clock.sleep(settle).await;
        let from = self.moment().await?;
        self.clock.sleep(window).await;
        let until = self.moment().await?;
        let usage = self.usage(&from, &until).await?;
        let Some(spent) = usage.spent else { return Ok(Rates::default()) };
        let statements = spent.statements.into_iter().map(|(text, calls)| (text, number(calls) / usage.seconds)).collect();
        Ok(Rates { commits: number(spent.commits) / usage.seconds, wal_bytes: number(spent.wal_bytes) / usage.seconds, statements })
    }
}

/// Waits until `ready` says yes.
///
/// # Errors
/// When it has not within `limit`, naming `what`.
pub async fn wait_until<F: Future<Output = bool>>(clock: &SystemClock, what: &str, limit: Duration, mut ready: impl FnMut() -> F) -> anyhow::Result<()> {
    let deadline = clock.monotonic() + limit;
    while !ready().await {
        if clock.monotonic() > deadline {
            bail!("waited {} s for {what}", limit.as_secs());
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The difference of two points of the monotonic clock, in milliseconds.
///
/// # Errors
/// When they are in the wrong order.
pub fn milliseconds(from: Duration, until: Duration) -> anyhow::Result<f64> {
    Ok(until.checked_sub(from).context("the monotonic clock went back")?.as_secs_f64() * 1e3)
}
