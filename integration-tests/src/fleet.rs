//! A fleet under test.

use crate::binaries;
use crate::eventually::eventually;
use crate::http::Api;
use crate::observer::Observer;
use crate::ports;
use crate::process::{Process, Program};
use crate::proxy::Proxy;
use crate::servers::{Database, Redis};
use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::try_join_all;
use harvest_runtime::{IdSource, SystemIds};
use harvest_sdk::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a fleet may take to be ready: a debug build on a loaded machine.
const START: Duration = Duration::from_secs(60);
/// How long `harvest dev` may take to end on SIGTERM.
const END: Duration = Duration::from_secs(40);
/// The services in start order, with their programs.
const SERVICES: [&str; 5] = ["config", "history", "matching", "timer-scanner", "frontend"];

/// The shapes of a fleet that the end-to-end cases run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One `harvest dev` process on a store file.
    Dev,
    /// Five processes, Postgres, Redis.
    Single,
    /// Two of each service, Postgres, Redis.
    Double,
}

/// What fleet a test wants.
#[derive(Debug, Clone)]
pub struct Plan {
    topology: Topology,
    name: String,
    shards: u32,
    copies: BTreeMap<String, usize>,
    own_postgres: bool,
    own_redis: bool,
    limited_files: bool,
    environment: BTreeMap<String, Vec<(String, String)>>,
    proxied: BTreeSet<Way>,
    cut_off: Option<String>,
}

/// A way that leads through a proxy when the plan says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the services to Postgres; of all of them, or of one.
    Postgres,
    /// From the services to Redis.
    Redis,
    /// From workers and clients to the first frontend, as through a load balancer.
    Frontend,
}

impl Plan {
    /// A fleet of this shape with four shards. `name` is part of the folder and of the channel names.
    pub fn new(topology: Topology, name: &str) -> Self {
        let copies = match topology {
            Topology::Dev => 0,
            Topology::Single => 1,
            Topology::Double => 2,
        };
        Self {
            topology,
            name: name.to_owned(),
            shards: 4,
            copies: SERVICES.iter().map(|service| ((*service).to_owned(), copies)).collect(),
            own_postgres: false,
            own_redis: false,
            limited_files: false,
            environment: BTreeMap::new(),
            proxied: BTreeSet::new(),
            cut_off: None,
        }
    }

    /// Another number of processes of one service.
    #[must_use]
    pub fn copies(mut self, service: &str, count: usize) -> Self {
        self.copies.insert(service.to_owned(), count);
        self
    }

    /// Another number of shards.
    #[must_use]
    pub fn shards(mut self, shards: u32) -> Self {
        self.shards = shards;
        self
    }

    /// A Postgres server that the test may kill.
    #[must_use]
    pub fn own_postgres(mut self) -> Self {
        self.own_postgres = true;
        self
    }

    /// A Redis server that the test may stop.
    #[must_use]
    pub fn own_redis(mut self) -> Self {
        self.own_redis = true;
        self
    }

    /// Processes whose files may be limited, as if the disk were full.
    #[must_use]
    pub fn limited_files(mut self) -> Self {
        self.limited_files = true;
        self
    }

    /// A proxy on a way, see [`Fleet::proxy`].
    #[must_use]
    pub fn proxied(mut self, way: Way) -> Self {
        self.proxied.insert(way);
        self
    }

    /// A proxy between one process, e.g. `history-1`, and Postgres.
    #[must_use]
    pub fn proxied_postgres_of(mut self, process: &str) -> Self {
        self.cut_off = Some(process.to_owned());
        self.proxied(Way::Postgres)
    }

    /// A variable in the environment of one process, e.g. `history-1`.
    #[must_use]
    pub fn environment(mut self, process: &str, name: &str, value: &str) -> Self {
        self.environment.entry(process.to_owned()).or_default().push((name.to_owned(), value.to_owned()));
        self
    }
}

/// One process with its addresses.
struct Part {
    process: Process,
    grpc: u16,
    http: u16,
}

/// A running fleet, its stores, and the observer. Everything ends when it is dropped.
pub struct Fleet {
    plan: Plan,
    parts: BTreeMap<String, Part>,
    database: Option<Database>,
    redis: Option<Redis>,
    observer: Arc<Observer>,
    proxies: BTreeMap<Way, Proxy>,
    /// As its processes know it; part of the names on Redis.
    name: String,
    folder: tempfile::TempDir,
}

impl Fleet {
    /// Starts everything and waits until every process is ready.
    ///
    /// # Errors
    /// When something is missing or does not get ready; the text has the end of that process' log.
    pub async fn start(plan: Plan) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("harvest-{}-", plan.name)).tempdir().context("a folder for logs")?;
        let observer = Arc::new(Observer::start().await?);
        let mut fleet = Self { parts: BTreeMap::new(), database: None, redis: None, observer, proxies: BTreeMap::new(), name: String::new(), folder, plan };
        if fleet.plan.topology == Topology::Dev {
            let store = fleet.store_file().display().to_string();
            fleet.launch("dev", binaries::path("harvest")?, vec!["dev".to_owned(), "--store".to_owned(), store], BTreeMap::new())?;
        } else {
            fleet.start_services().await?;
        }
        fleet.wait_ready().await?;
        Ok(fleet)
    }

    async fn start_services(&mut self) -> anyhow::Result<()> {
        let (database, redis) = tokio::try_join!(Database::start(self.plan.own_postgres), Redis::start(self.plan.own_redis, self.folder.path()))?;
        harvest_persistence::postgres::migrate(&database.url, self.plan.shards).await?;
        self.name = format!("{}-{}", self.plan.name, SystemIds.process_id());
        let (database_url, redis_url) = (self.through(Way::Postgres, &database.url).await?, self.through(Way::Redis, &redis.url).await?);
        let shared = BTreeMap::from([("HARVEST_FLEET".to_owned(), self.name.clone()), ("HARVEST_REDIS_URL".to_owned(), redis_url)]);
        for service in SERVICES {
            for copy in 1..=self.plan.copies.get(service).copied().unwrap_or(0) {
                let (name, mut environment) = (format!("{service}-{copy}"), shared.clone());
                let direct = self.plan.cut_off.as_ref().is_some_and(|cut_off| *cut_off != name);
                let url = if direct { &database.url } else { &database_url };
                environment.insert("HARVEST_DATABASE_URL".to_owned(), url.clone());
                self.launch(&name, binaries::path(&format!("harvest-{service}"))?, Vec::new(), environment)?;
            }
        }
        (self.database, self.redis) = (Some(database), Some(redis));
        if self.plan.proxied.contains(&Way::Frontend) {
            let grpc = self.edges().next().context("a fleet without a frontend")?.grpc;
            self.proxies.insert(Way::Frontend, Proxy::before(&format!("127.0.0.1:{grpc}")).await?);
        }
        Ok(())
    }

    /// The URL of a server, through a proxy if the plan has one on the way.
    async fn through(&mut self, way: Way, url: &str) -> anyhow::Result<String> {
        if !self.plan.proxied.contains(&way) {
            return Ok(url.to_owned());
        }
        let (proxy, url) = Proxy::before_url(url).await?;
        self.proxies.insert(way, proxy);
        Ok(url)
    }

    fn launch(&mut self, name: &str, path: PathBuf, arguments: Vec<String>, mut environment: BTreeMap<String, String>) -> anyhow::Result<()> {
        let (grpc, http) = (ports::free()?, ports::free()?);
        environment.insert("HARVEST_GRPC_LISTEN".to_owned(), format!("127.0.0.1:{grpc}"));
        environment.insert("HARVEST_HTTP_LISTEN".to_owned(), format!("127.0.0.1:{http}"));
        environment.extend(self.plan.environment.get(name).into_iter().flatten().cloned());
        let program = Program { name: name.to_owned(), path, arguments, environment };
        let program = if self.plan.limited_files { program.limitable() } else { program };
        self.parts.insert(name.to_owned(), Part { process: Process::start(program, self.folder.path())?, grpc, http });
        Ok(())
    }

    /// Waits until every process that runs is ready.
    ///
    /// # Errors
    /// When one is not in time, with the end of its log.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        try_join_all(self.parts.keys().filter(|name| self.parts[*name].process.is_running()).map(|name| self.wait_one_ready(name))).await.map(|_| ())
    }

    /// Waits until one process is ready.
    ///
    /// # Errors
    /// When it is not in time, with the end of its log.
    pub async fn wait_one_ready(&self, name: &str) -> anyhow::Result<()> {
        let part = self.part(name)?;
        let client = reqwest::Client::new();
        let url = format!("http://127.0.0.1:{}/health/ready", part.http);
        let ready = eventually(format!("{name} is ready"), START, || async {
            if !part.process.is_running() {
                return Ok(Some(Err(anyhow::anyhow!("{name} has ended"))));
            }
            let answer = client.get(&url).timeout(Duration::from_secs(2)).send().await?;
            let status = answer.status();
            anyhow::ensure!(status.is_success(), "{status}: {}", answer.text().await.unwrap_or_default());
            Ok(Some(Ok(())))
        });
        ready.await.and_then(|ready| ready).with_context(|| format!("the end of its log:\n{}", part.process.tail()))
    }

    fn part(&self, name: &str) -> anyhow::Result<&Part> {
        self.parts.get(name).with_context(|| format!("the fleet has no process {name}"))
    }

    /// One process: `history-1`, `dev`, ..
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn process(&self, name: &str) -> anyhow::Result<&Process> {
        self.part(name).map(|part| &part.process)
    }

    /// Names of all processes.
    pub fn process_names(&self) -> Vec<String> {
        self.parts.keys().cloned().collect()
    }

    /// The process that serves gRPC at an address.
    pub fn process_at(&self, address: &str) -> Option<String> {
        let port: u16 = address.trim_end_matches('/').rsplit(':').next()?.parse().ok()?;
        self.parts.iter().find(|(_, part)| part.grpc == port).map(|(name, _)| name.clone())
    }

    /// Where a process serves gRPC.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn address(&self, name: &str) -> anyhow::Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.part(name)?.grpc))
    }

    fn edges(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|(name, _)| name.as_str() == "dev" || name.starts_with("frontend")).map(|(_, part)| part)
    }

    /// gRPC addresses of the frontends, for workers and clients; only that of the proxy when there is one on this way.
    pub fn frontends(&self) -> Vec<String> {
        match self.proxies.get(&Way::Frontend) {
            Some(proxy) => vec![format!("http://{}", proxy.address())],
            None => self.edges().map(|part| format!("http://127.0.0.1:{}", part.grpc)).collect(),
        }
    }

    /// The proxy that the plan has on a way.
    ///
    /// # Errors
    /// When it has none.
    pub fn proxy(&self, way: Way) -> anyhow::Result<&Proxy> {
        self.proxies.get(&way).with_context(|| format!("this fleet has no proxy on the way {way:?}: ask for one in its plan"))
    }

    /// What a process says of its readiness.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn readiness(&self, name: &str) -> anyhow::Result<(u16, String)> {
        let answer =
            reqwest::Client::new().get(format!("http://127.0.0.1:{}/health/ready", self.part(name)?.http)).timeout(Duration::from_secs(2)).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// What a process shows as one of its metrics, summed over labels; 0 when it is absent.
    ///
    /// # Errors
    /// When it does not answer, or the value is no number.
    pub async fn metric(&self, name: &str, metric: &str) -> anyhow::Result<f64> {
        let url = format!("http://127.0.0.1:{}/metrics", self.part(name)?.http);
        let text = reqwest::Client::new().get(url).timeout(Duration::from_secs(2)).send().await?.text().await?;
        let values = text.lines().filter(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' '])));
        values.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<f64>()?)).sum()
    }

    /// The HTTP API of a frontend, for one tenant.
    ///
    /// # Errors
    /// When the fleet has no frontend.
    pub fn api(&self, namespace: &str) -> anyhow::Result<Api> {
        let edge = self.edges().next().context("a fleet without a frontend")?;
        Ok(Api::new(&format!("http://127.0.0.1:{}/api/harvest", edge.http), namespace))
    }

    /// A client of all frontends, for one tenant.
    ///
    /// # Errors
    /// When the addresses are malformed.
    pub fn client(&self, namespace: &str) -> anyhow::Result<Client> {
        Ok(Client::connect(self.frontends())?.with_namespace(namespace).with_patience(Duration::from_secs(60)))
    }

    /// The channel that its processes broadcast on.
    pub fn channel(&self) -> String {
        format!("harvest:{}:config", self.name)
    }

    /// Its shape.
    pub fn topology(&self) -> Topology {
        self.plan.topology
    }

    /// How many shards it has.
    pub fn shards(&self) -> u32 {
        self.plan.shards
    }

    /// The world outside.
    pub fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    /// Its database; `harvest dev` has none.
    ///
    /// # Errors
    /// For `harvest dev`.
    pub fn database(&self) -> anyhow::Result<&Database> {
        self.database.as_ref().context("harvest dev has no Postgres")
    }

    /// Its Redis; `harvest dev` has none.
    ///
    /// # Errors
    /// For `harvest dev`.
    pub fn redis(&self) -> anyhow::Result<&Redis> {
        self.redis.as_ref().context("harvest dev has no Redis")
    }

    /// Folder of its logs, gone with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The store file of `harvest dev`.
    pub fn store_file(&self) -> PathBuf {
        self.folder.path().join("harvest.db")
    }

    /// Ends `harvest dev` in order, so that its store file can be read; changes nothing of other fleets.
    ///
    /// # Errors
    /// When it does not end, or ends with a fault.
    pub async fn release_store(&self) -> anyhow::Result<()> {
        let Some(dev) = self.parts.get("dev").filter(|dev| dev.process.is_running()) else { return Ok(()) };
        dev.process.terminate()?;
        let status = dev.process.wait(END).await?;
        anyhow::ensure!(status.success(), "harvest dev ended with {status}");
        Ok(())
    }

    /// The sum of a counter over all processes; `series` is its name with labels, as `/metrics` shows it.
    ///
    /// # Errors
    /// When a process does not answer.
    pub async fn counted(&self, series: &str) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for part in self.parts.values() {
            let text = reqwest::get(format!("http://127.0.0.1:{}/metrics", part.http)).await?.error_for_status()?.text().await?;
            let values = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse::<f64>().ok());
            sum += values.sum::<f64>();
        }
        Ok(sum)
    }

    /// Starts a worker process of the shared samples for one tenant and queue.
    ///
    /// # Errors
    /// When the program is not there.
    pub fn start_worker(&self, name: &str, namespace: &str, queue: &str, environment: &[(&str, &str)]) -> anyhow::Result<Process> {
        let mut variables = BTreeMap::from([
            ("TEST_WORKER_ADDRESSES".to_owned(), self.frontends().join(",")),
            ("TEST_WORKER_NAMESPACE".to_owned(), namespace.to_owned()),
            ("TEST_WORKER_QUEUE".to_owned(), queue.to_owned()),
            ("TEST_WORKER_OBSERVER".to_owned(), self.observer.url().to_owned()),
        ]);
        variables.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let program = Program { name: name.to_owned(), path: binaries::path("test-worker")?, arguments: Vec::new(), environment: variables };
        Process::start(program, self.folder.path())
    }

    /// The end of every log in the folder, for the report of a failed test.
    pub fn logs(&self) -> String {
        let mut files: Vec<PathBuf> = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        files.sort();
        files.iter().map(|path| format!("--- {}\n{}\n", path.display(), tail(path))).collect()
    }
}

/// Lines of each log that are shown when a test fails.
const SHOWN_LINES: usize = 40;

fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

/// The variable that makes the logs of failed tests stay: names nothing, any value does.
pub const KEEP_VARIABLE: &str = "HARVEST_TEST_KEEP_LOGS";

/// Runs a test on a fleet of its own; when it fails the logs are printed.
///
/// # Panics
/// When the fleet does not start or the test fails: this is the body of a test.
pub async fn with_fleet<F: Future<Output = anyhow::Result<()>>>(plan: Plan, test: impl FnOnce(Arc<Fleet>) -> F) {
    let fleet = match Fleet::start(plan).await {
        Ok(fleet) => Arc::new(fleet),
        Err(error) => panic!("the fleet does not start: {error:#}"),
    };
    // Also a failed assertion inside must show the logs.
    let result = AssertUnwindSafe(test(fleet.clone())).catch_unwind().await;
    let failure = match result {
        Ok(Ok(())) => return,
        Ok(Err(error)) => format!("{error:#}"),
        Err(panic) => crate::suite::panic_text(panic.as_ref()),
    };
    println!("{}", fleet.logs());
    if std::env::var_os(KEEP_VARIABLE).is_some() {
        let kept = std::env::temp_dir().join(format!("kept-{}", fleet.folder().file_name().unwrap_or_default().to_string_lossy()));
        match std::fs::rename(fleet.folder(), &kept) {
            Ok(()) => println!("logs: {}", kept.display()),
            Err(error) => println!("the logs could not be kept: {error}"),
        }
    }
    panic!("{failure}");
}
