//! The processes that are measured: the engine and a worker.

use super::Layout;
use super::probe::wait_until;
use anyhow::{Context as _, bail};
use harvest_runtime::SystemClock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long a process may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The role of the worker that takes tasks of a backlog.
const DRAIN: &str = "drain";

/// What to start.
pub struct Plan {
    /// One engine process or one per service.
    pub layout: Layout,
    /// Postgres, or none for the embedded store.
    pub database: Option<String>,
    /// Redis.
    pub redis: Option<String>,
    /// Shards of the store.
    pub shards: u32,
    /// Processes of each service.
    pub copies: u32,
    /// Processes of history.
    pub histories: u32,
    /// Where logs and the store file go.
    pub folder: PathBuf,
}

/// One process and how to start it again.
struct Process {
    role: &'static str,
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
    grpc_port: u16,
    http_port: u16,
    child: Child,
}

/// The running processes. They are killed when this is dropped.
pub struct Fleet {
    processes: Vec<Process>,
    address: String,
    folder: PathBuf,
    clock: SystemClock,
    http: reqwest::Client,
}

impl Fleet {
    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// When a process ends or is not ready in time; its log says why.
    pub async fn start(plan: Plan) -> anyhow::Result<Self> {
        empty_folder(&plan.folder)?;
        let (folder, clock) = (plan.folder.clone(), SystemClock::new());
        let mut fleet = Self { processes: Vec::new(), address: String::new(), folder, clock, http: reqwest::Client::new() };
        match plan.layout {
            Layout::Single => fleet.start_engine(&plan).await?,
            Layout::Separate => fleet.start_services(&plan).await?,
        }
        let arguments = ["bench", "worker", "--frontend", &fleet.address].map(str::to_owned).to_vec();
        let worker = spawn("worker", "worker", &plan.folder, own_program()?, arguments, Vec::new(), [0, 0])?;
        fleet.processes.push(worker);
        Ok(fleet)
    }

    async fn start_engine(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let ports = free_ports()?;
        let mut arguments = vec!["dev".to_owned(), "--shards".to_owned(), plan.shards.to_string()];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("--grpc-listen", listen(ports[0]));
        option("--http-listen", listen(ports[1]));
        match &plan.database {
            Some(url) => option("--postgres", url.clone()),
            None => option("--store", plan.folder.join("bench.db").display().to_string()),
        }
        if let (Some(_), Some(url)) = (&plan.database, &plan.redis) {
            option("--redis", url.clone());
        }
        self.processes.push(spawn("engine", "engine", &plan.folder, own_program()?, arguments, Vec::new(), ports)?);
        self.address = format!("http://{}", listen(ports[0]));
        self.wait_ready(0).await
    }

    async fn start_services(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let url = plan.database.as_deref().context("separate services need Postgres")?;
        harvest_persistence::postgres::migrate(url, plan.shards).await?;
        let folder = own_program()?.parent().map(Path::to_path_buf).context("this program is in no folder")?;
        for (role, binary) in [("config", "config"), ("history", "history"), ("matching", "matching"), ("timer", "timer-scanner"), ("frontend", "frontend")] {
            for copy in 1..=if role == "history" { plan.histories } else { plan.copies } {
                let ports = free_ports()?;
                let environment = vec![
                    ("HARVEST_FLEET", "bench".to_owned()),
                    ("HARVEST_GRPC_LISTEN", listen(ports[0])),
                    ("HARVEST_HTTP_LISTEN", listen(ports[1])),
                    ("HARVEST_DATABASE_URL", url.to_owned()),
                    ("HARVEST_REDIS_URL", plan.redis.clone().context("separate services need Redis")?),
                ];
                let program = folder.join(format!("harvest-{binary}"));
                let process = spawn(role, &format!("{binary}-{copy}"), &plan.folder, program, Vec::new(), environment, ports)?;
                self.processes.push(process);
                self.address = format!("http://{}", listen(ports[0])); // frontends come last
            }
        }
        for index in 0..self.processes.len() {
            self.wait_ready(index).await?;
        }
        Ok(())
    }

    async fn wait_ready(&mut self, index: usize) -> anyhow::Result<()> {
        let Self { processes, clock, http, .. } = self;
        let process = &mut processes[index];
        let url = format!("http://{}/health/ready", listen(process.http_port));
        let (child, what) = (&mut process.child, format!("{} to be ready; its log is {}", process.name, process.log.display()));
        let mut ended = None;
        let ready = wait_until(clock, &what, PATIENCE, || {
            ended = child.try_wait().ok().flatten();
            let (done, request) = (ended.is_some(), http.get(&url).timeout(Duration::from_secs(2)).send());
            async move { done || request.await.is_ok_and(|reply| reply.status().is_success()) }
        });
        ready.await?;
        if let Some(status) = ended {
            bail!("{} ended ({status}); its log is {}", process.name, process.log.display());
        }
        Ok(())
    }

    /// The frontend's address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What each process is, and its id.
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        self.processes.iter().filter_map(|process| Some((process.role, process.child.id()?))).collect()
    }

    /// Kills the history process that serves at this port with SIGKILL.
    ///
    /// # Errors
    /// When there is none.
    pub async fn kill_history(&mut self, grpc_port: u16) -> anyhow::Result<()> {
        let index = self.history(grpc_port)?;
        self.processes[index].child.kill().await.context("SIGKILL")
    }

    /// Stops the history process that serves at this port with SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// When there is none, or it does not end.
    pub async fn stop_history(&mut self, grpc_port: u16) -> anyhow::Result<()> {
        let index = self.history(grpc_port)?;
        end(&mut self.processes[index]).await
    }

    /// Starts it again.
    ///
    /// # Errors
    /// When there is none, or it does not become ready.
    pub async fn restart_history(&mut self, grpc_port: u16) -> anyhow::Result<()> {
        let index = self.history(grpc_port)?;
        let process = &mut self.processes[index];
        process.child = launch(&process.program, &process.arguments, &process.environment, &process.log)?;
        self.wait_ready(index).await
    }

    /// Kills the one engine process, or the history process that serves at this port, with SIGKILL and starts it again. It need not be ready yet:
    /// [`Fleet::ready`] waits for that.
    ///
    /// # Errors
    /// When there is none.
    pub async fn crash_owner(&mut self, grpc_port: u16) -> anyhow::Result<()> {
        let engine = self.processes.iter().position(|process| process.role == "engine");
        let index = engine.map_or_else(|| self.history(grpc_port), Ok)?;
        let process = &mut self.processes[index];
        process.child.kill().await.context("SIGKILL")?;
        process.child = launch(&process.program, &process.arguments, &process.environment, &process.log)?;
        Ok(())
    }

    /// Waits until all services are ready.
    ///
    /// # Errors
    /// When one is not in time.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        for index in 0..self.processes.len() {
            if self.processes[index].http_port != 0 {
                self.wait_ready(index).await?;
            }
        }
        Ok(())
    }

    /// Starts one more worker, for this queue alone, that writes down each activity attempt that it is handed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_drain(&mut self, queue: &str, record: &Path) -> anyhow::Result<()> {
        let options = ["bench", "worker", "--frontend", &self.address, "--queue", queue, "--record"].map(str::to_owned);
        let arguments = options.into_iter().chain([record.display().to_string()]).collect();
        self.processes.push(spawn(DRAIN, DRAIN, &self.folder, own_program()?, arguments, Vec::new(), [0, 0])?);
        Ok(())
    }

    /// Ends it; attempts that it has are finished first.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop_drain(&mut self) -> anyhow::Result<()> {
        while let Some(index) = self.processes.iter().position(|process| process.role == DRAIN) {
            end(&mut self.processes.remove(index)).await?;
        }
        Ok(())
    }

    fn history(&self, grpc_port: u16) -> anyhow::Result<usize> {
        let found = self.processes.iter().position(|process| process.role == "history" && process.grpc_port == grpc_port);
        found.with_context(|| format!("no history process serves at port {grpc_port}"))
    }

    /// Asks all processes to end, those started last first, and waits for each.
    ///
    /// # Errors
    /// When one does not.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        while let Some(mut process) = self.processes.pop() {
            end(&mut process).await?;
        }
        Ok(())
    }
}

/// Asks a process to end and waits for it.
async fn end(process: &mut Process) -> anyhow::Result<()> {
    let Some(pid) = process.child.id() else { return Ok(()) };
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
    let ended = tokio::time::timeout(PATIENCE, process.child.wait()).await;
    ended.with_context(|| format!("{} does not end; its log is {}", process.name, process.log.display()))??;
    Ok(())
}

fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("this program's own path is not known")
}

fn spawn(
    role: &'static str,
    name: &str,
    folder: &Path,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    [grpc_port, http_port]: [u16; 2],
) -> anyhow::Result<Process> {
    let log = folder.join(format!("{name}.log"));
    let child = launch(&program, &arguments, &environment, &log)?;
    Ok(Process { role, name: name.to_owned(), program, arguments, environment, log, grpc_port, http_port, child })
}

fn launch(program: &Path, arguments: &[String], environment: &[(&'static str, String)], log: &Path) -> anyhow::Result<Child> {
    let output = File::options().create(true).append(true).open(log).with_context(|| format!("{} cannot be written", log.display()))?;
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
    // A group of its own: an interrupt of the benchmark must not reach it first.
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true).process_group(0);
    command.spawn().with_context(|| format!("{} cannot be started", program.display()))
}

/// Makes the folder, without what an earlier benchmark left in it.
fn empty_folder(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("the folder {} cannot be made", folder.display()))?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".log") || name.ends_with(".record") || name.starts_with("bench.db") {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn listen(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Two loopback ports that nobody listens on at this moment.
fn free_ports() -> anyhow::Result<[u16; 2]> {
    let listeners = [TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}
