//! `harvest bench`: what runs cost, in time, CPU, commits, statements and WAL. `docs/performance.md` explains each figure.
//!
//! This process is the load generator and nothing else. The engine (one `harvest dev`, or the five services), the worker, Postgres and Redis
//! are processes of their own, so that the CPU of each is known from the operating system. Start at [`Bench::run`].

mod asleep;
mod backlog;
mod code;
mod cpu;
mod fleet;
mod handover;
mod load;
mod ownership;
mod probe;
mod progress;
mod report;
mod soak;
mod special;
mod starts;
mod storm;
mod takeover;
mod timers;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use code::QUEUE;
use fleet::{Fleet, Plan};
use harvest_ids::ShardId;
use harvest_persistence::control::DirectoryStore as _;
use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_runtime::{Clock, Shutdown};
use load::Load;
use probe::{Probe, Rates};
use progress::Progress;
use report::{Figures, Report};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the fleet rests before its idle background is measured.
const SETTLE: Duration = Duration::from_secs(3);
/// How long the idle background is measured.
const IDLE_WINDOW: Duration = Duration::from_secs(6);

/// What is done over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// One activity.
    #[value(name = "A1")]
    A1,
    /// Start and result, no step.
    #[value(name = "W1")]
    W1,
    /// Three activities in sequence.
    #[value(name = "W2")]
    W2,
    /// 500 runs with a timer of 1 s, at once.
    #[value(name = "W3")]
    W3,
    /// Start, one signal, result.
    #[value(name = "W4")]
    W4,
    /// One run that takes 10 000 signals. The unit is a signal.
    #[value(name = "W5")]
    W5,
    /// One run that takes signals from 16 senders all the time. The unit is a signal.
    #[value(name = "signals16")]
    Signals16,
    /// Nothing. The unit is a second.
    #[value(name = "idle")]
    Idle,
    /// The owner of shards is killed under load. The unit is a shard that changes hands. Separate services on Postgres only.
    #[value(name = "takeover")]
    Takeover,
    /// The owner of shards is stopped in order under load. The unit is a shard that changes hands. Separate services on Postgres only.
    #[value(name = "handover")]
    Handover,
    /// A queue with many pending tasks that no worker serves, then a worker that drains a part. The unit is a task. Postgres only.
    #[value(name = "backlog")]
    Backlog,
    /// Many open runs asleep, and then their owner is killed. Postgres only.
    #[value(name = "asleep")]
    Asleep,
    /// Many starts at once, and all results.
    #[value(name = "storm")]
    Storm,
    /// Ordinary work for long, most of it W2: the first tenth of the time compared with the last.
    #[value(name = "soak")]
    Soak,
}

impl Workload {
    /// The name on the command line and in reports.
    fn name(self) -> &'static str {
        match self {
            Self::A1 => "A1",
            Self::W1 => "W1",
            Self::W2 => "W2",
            Self::W3 => "W3",
            Self::W4 => "W4",
            Self::W5 => "W5",
            Self::Signals16 => "signals16",
            Self::Idle => "idle",
            Self::Takeover => "takeover",
            Self::Handover => "handover",
            Self::Backlog => "backlog",
            Self::Asleep => "asleep",
            Self::Storm => "storm",
            Self::Soak => "soak",
        }
    }

    /// Whether history processes end in it.
    fn changes_owners(self) -> bool {
        matches!(self, Self::Takeover | Self::Handover)
    }

    /// Whether processes of the engine end in it on purpose.
    fn ends_processes(self) -> bool {
        self.changes_owners() || self == Self::Asleep
    }

    /// Whether it is done at each of the concurrencies, or says itself how many do it.
    fn varies(self) -> bool {
        matches!(self, Self::A1 | Self::W1 | Self::W2 | Self::W4 | Self::W5)
    }
}

/// How the engine is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// All services in one process (`harvest dev`).
    Single,
    /// A process per service.
    Separate,
}

/// Where runs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// A Postgres server.
    Postgres,
    /// One SQLite file in the engine's process.
    Embedded,
}

/// Measures what runs cost: time, CPU, commits, statements, WAL.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: Options,
}

/// What the benchmark starts itself as.
#[derive(Debug, Subcommand)]
enum Role {
    /// The worker that serves the benchmark's runs.
    #[command(hide = true)]
    Worker {
        /// A frontend's gRPC address.
        #[arg(long)]
        frontend: String,
        /// The queue that it serves instead of the benchmark's.
        #[arg(long)]
        queue: Option<String>,
        /// Where it writes down which activities of a backlog it is handed.
        #[arg(long)]
        record: Option<PathBuf>,
    },
}

/// What a measurement takes place in.
pub struct Scene<'a> {
    load: &'a Load,
    fleet: &'a mut Fleet,
    probe: &'a mut Probe,
    idle: &'a Rates,
    progress: &'a Progress,
    folder: &'a Path,
    shard_count: u32,
}

impl Scene<'_> {
    /// All shards.
    fn shards(&self) -> Vec<ShardId> {
        (0..self.shard_count).map(ShardId).collect()
    }

    /// The shard of each slot, as Postgres has it.
    async fn slots(&self) -> anyhow::Result<Arc<Vec<ShardId>>> {
        let url = self.probe.database_url().context("the slots are read from Postgres")?;
        let store = PgStore::connect(url, PgOptions { max_sessions: 1, ..PgOptions::default() }).await?;
        Ok(Arc::new(store.slot_map().await?.1))
    }
}

#[derive(Debug, Args)]
struct Options {
    /// What to do, comma separated; default A1 and W1 to W5.
    #[arg(long, value_enum, ignore_case = true, value_delimiter = ',', default_values = ["A1", "W1", "W2", "W3", "W4", "W5"])]
    workload: Vec<Workload>,
    /// How many clients do it at once, comma separated.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64], value_parser = clap::value_parser!(u32).range(1..=1024))]
    concurrency: Vec<u32>,
    /// For how long each is measured.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// One process, or one per service.
    #[arg(long, value_enum, default_value = "single")]
    services: Layout,
    /// Where runs are kept.
    #[arg(long, value_enum, default_value = "postgres")]
    store: Store,
    /// One JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Also show which statements were sent, and how often per run.
    #[arg(long)]
    explain: bool,
    /// Shards of the store.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: u32,
    /// Processes of each service, when separate.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    copies: u32,
    /// Signals of W5.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    signals: u64,
    /// Pending tasks of backlog.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    tasks: u64,
    /// Activities that one run of backlog asks for.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    per_run: u64,
    /// Runs of asleep and storm; default 100 000 and 50 000.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    runs: Option<u64>,
    /// Clients of storm.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    clients: u32,
    /// Minutes of soak, e.g. 0.5.
    #[arg(long, default_value = "20", value_parser = minutes)]
    minutes: Duration,
    /// Closed runs that the tables hold before soak begins; Postgres only.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    closed_runs: u64,
    /// The maintenance database of a Postgres that nobody else uses, as a superuser; a database `harvest_bench` is made in it.
    #[arg(long, env = "HARVEST_BENCH_POSTGRES_URL", hide_env_values = true)]
    postgres: Option<String>,
    /// A Redis; needed for separate services.
    #[arg(long, env = "HARVEST_BENCH_REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
    /// The process of that Redis, for its CPU.
    #[arg(long, env = "HARVEST_BENCH_REDIS_PID")]
    redis_pid: Option<u32>,
    /// Logs of the processes and the store file; emptied first.
    #[arg(long, default_value = ".harvest/bench")]
    folder: PathBuf,
    /// Only look whether the arguments are right.
    #[arg(long, hide = true)]
    check: bool,
}

impl Bench {
    /// Runs the workloads and prints their figures.
    ///
    /// # Errors
    /// When a process does not start, a run fails, or something cannot be measured.
    pub async fn run(self) -> anyhow::Result<()> {
        if let Some(Role::Worker { frontend, queue, record }) = self.role {
            return code::work(&frontend, queue.as_deref(), record.as_deref(), Shutdown::on_signals()?).await;
        }
        self.options.check()?;
        if self.options.check {
            return Ok(());
        }
        // A terminal's Ctrl-C comes together with what `./x bench` sends: the processes must be ended all the same.
        let shutdown = Shutdown::on_first_signal()?;
        tokio::select! {
            done = self.options.measure() => done,
            () = shutdown.begun() => bail!("interrupted"),
        }
    }
}

impl Options {
    fn check(&self) -> anyhow::Result<()> {
        if self.store == Store::Postgres && self.postgres.is_none() {
            bail!("--store postgres needs --postgres URL (`./x bench` starts one)");
        }
        if self.store == Store::Embedded && self.services == Layout::Separate {
            bail!("--store embedded is one process: it does not go with --services separate");
        }
        if self.services == Layout::Separate && self.redis.is_none() {
            bail!("--services separate needs --redis URL (`./x bench` starts one)");
        }
        if let (Layout::Single, Some(workload)) = (self.services, self.workload.iter().find(|workload| workload.changes_owners())) {
            bail!("{} needs --services separate", workload.name());
        }
        let only_postgres =
            |workload: &Workload| matches!(workload, Workload::Backlog | Workload::Asleep) || (*workload == Workload::Soak && self.closed_runs > 0);
        if let (Store::Embedded, Some(workload)) = (self.store, self.workload.iter().find(|workload| only_postgres(workload))) {
            bail!("{} reads the tables of Postgres: it does not go with --store embedded", workload.name());
        }
        Ok(())
    }

    async fn measure(&self) -> anyhow::Result<()> {
        let progress = Progress::new();
        let mut probe = Probe::connect(self.postgres.as_deref().filter(|_| self.store == Store::Postgres), self.redis_pid).await?;
        progress.step("starting the processes");
        let mut fleet = Fleet::start(self.plan(probe.fresh_database("harvest_bench").await?)).await?;
        probe.watch(fleet.processes());
        let load = Load::new(fleet.address())?;
        progress.step("waiting for the worker");
        load.warm_up().await?;
        progress.step("measuring the idle background");
        let idle = probe.idle(SETTLE, IDLE_WINDOW).await?;
        let mut report = Report::new(self.json, self.explain);
        let (folder, shard_count) = (self.folder.as_path(), self.shards);
        let mut scene = Scene { load: &load, fleet: &mut fleet, probe: &mut probe, idle: &idle, progress: &progress, folder, shard_count };
        for &workload in &self.workload {
            let clients: &[u32] = if workload.varies() { &self.concurrency } else { &[1] };
            for &concurrency in clients {
                let processes = if workload.ends_processes() { Vec::new() } else { scene.fleet.processes() };
                let clock = scene.probe.clock();
                let figures = tokio::select! {
                    figures = self.one(workload, concurrency, &mut scene) => figures,
                    (role, pid) = death(&processes, &*clock) => Err(anyhow::anyhow!("the {role} (process {pid}) has ended or was killed")),
                };
                let figures = figures.with_context(|| format!("{} at concurrency {concurrency}; logs are in {}", workload.name(), self.folder.display()))?;
                progress.suspend(|| report.add(figures))?;
            }
        }
        progress.finish();
        report.finish();
        fleet.stop().await
    }

    fn plan(&self, database: Option<String>) -> Plan {
        let histories = if self.workload.iter().copied().any(Workload::changes_owners) { self.copies.max(2) } else { self.copies };
        Plan { layout: self.services, database, redis: self.redis.clone(), shards: self.shards, copies: self.copies, histories, folder: self.folder.clone() }
    }

    async fn one(&self, workload: Workload, concurrency: u32, scene: &mut Scene<'_>) -> anyhow::Result<Figures> {
        let span = Duration::from_secs(self.seconds);
        match workload {
            Workload::A1 | Workload::W1 | Workload::W2 | Workload::W4 => {
                load::closed_loop(scene.load, workload, concurrency, span, scene.probe, scene.idle, scene.progress).await
            }
            Workload::W3 => timers::measure(scene.load, span, scene.probe, scene.idle, scene.progress).await,
            Workload::W5 => special::one_run(scene.load, concurrency, self.signals, span, scene.probe, scene.idle, scene.progress).await,
            Workload::Signals16 => special::sustained(scene.load, 16, span, scene.probe, scene.idle, scene.progress).await,
            Workload::Idle => special::idle(span, scene.probe, scene.progress).await,
            Workload::Takeover => takeover::measure(scene.load, scene.fleet, scene.probe, span, scene.progress).await,
            Workload::Handover => handover::measure(scene.load, scene.fleet, scene.probe, span, scene.progress).await,
            Workload::Backlog => backlog::measure(scene, backlog::Size::new(self.tasks, self.per_run)).await,
            Workload::Asleep => asleep::measure(scene, self.runs.unwrap_or(100_000), span).await,
            Workload::Storm => storm::measure(scene, self.runs.unwrap_or(50_000), self.clients).await,
            Workload::Soak => soak::measure(scene, self.minutes, self.concurrency.iter().copied().max().unwrap_or(1), self.closed_runs).await,
        }
    }
}

/// Returns when one of the processes is no more.
async fn death(processes: &[(&'static str, u32)], clock: &impl Clock) -> (&'static str, u32) {
    loop {
        clock.sleep(Duration::from_millis(500)).await;
        if let Some(gone) = processes.iter().find(|(_, pid)| cpu::has_ended(*pid)) {
            return *gone;
        }
    }
}

/// A number of minutes, as a span.
fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| format!("{text:?} is no number of minutes"))?;
    if !(0.02..=1_440.0).contains(&minutes) {
        return Err("0.02 to 1440 minutes are allowed".to_owned());
    }
    Ok(Duration::from_secs_f64(minutes * 60.0))
}
