//! A private Postgres server that dies with the process that started it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::sync::oneshot;

/// The most that a server may take to start: recovery on a loaded machine included.
const START_LIMIT: Duration = Duration::from_secs(90);

/// Log lines kept for error messages.
const LOG_LINES: usize = 40;

/// Runs the server and ends it when standard input ends, which it does when the process that started us is gone, however it went.
/// A line `keep` beforehand leaves the data. $1 is the folder, $2 where the binaries are, $3 words before a command that make it run as
/// somebody Postgres accepts; the rest goes to the server.
const KEEPER: &str = r#"
folder=$1 binaries=$2 run=$3; shift 3
if ! [ -d "$folder/data" ]; then
    $run "$binaries/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C --no-sync --no-instructions >/dev/null </dev/null \
        || { rm -rf "$folder"; exit 1; }
fi
$run "$binaries/postgres" -D "$folder/data" "$@" </dev/null &
server=$!
exec 2>/dev/null
read -r line
if [ "$line" = keep ]; then kill -QUIT "$server"; wait "$server"; exit; fi
# A server that has only just begun ignores QUIT. Its children end by themselves, and may write until they do.
kill -KILL "$server"; wait "$server"
rm -rf "$folder" || rm -rf "$folder"
"#;

/// The words of a root user.
const UNPRIVILEGED: &str = "setpriv --reuid=postgres --regid=postgres --clear-groups";

/// Why no server could be had.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// Postgres is not installed.
    #[error("no Postgres: neither PATH nor /usr/lib/postgresql/*/bin has `initdb` and `postgres`; on Debian: apt-get install postgresql")]
    NotInstalled,
    /// A command failed.
    #[error("{command} failed: {why}")]
    Command {
        /// Which.
        command: String,
        /// What it said.
        why: String,
    },
    /// The server did not come up.
    #[error("Postgres did not start: {0}")]
    Start(String),
    /// The server refused.
    #[error("Postgres refused: {0}")]
    Database(#[from] sqlx::Error),
}

fn failed(command: &str, why: impl std::fmt::Display) -> ProvisionError {
    ProvisionError::Command { command: command.to_owned(), why: why.to_string() }
}

/// A private server on a free loopback port, with fsync, in a folder that goes with it.
pub struct PgServer {
    folder: PathBuf,
    binaries: PathBuf,
    root: bool,
    port: u16,
    running: Option<Running>,
}

struct Running {
    keeper: Child,
    /// Ends when every process of the server is gone.
    gone: oneshot::Receiver<()>,
}

impl PgServer {
    /// Makes a data folder and starts a server on it.
    ///
    /// # Errors
    /// [`ProvisionError`]
    pub async fn start() -> Result<Self, ProvisionError> {
        let binaries = find_binaries().ok_or(ProvisionError::NotInstalled)?;
        let root = output("id", &["-u"])? == "0";
        let mut server = Self { folder: make_folder(root)?, binaries, root, port: 0, running: None };
        // Somebody else may take the free port before the server does.
        let mut tries = 5;
        loop {
            server.port = free_port()?;
            match server.restart().await {
                Err(ProvisionError::Start(log)) if log.contains("could not bind") && tries > 0 => tries -= 1,
                result => return result.map(|()| server),
            }
        }
    }

    /// The URL of one of its databases, as a superuser.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The loopback port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server's main process with SIGKILL and waits until all its processes are gone.
    ///
    /// # Errors
    /// [`ProvisionError`] when it does not run.
    pub async fn kill9(&mut self) -> Result<(), ProvisionError> {
        let file = self.folder.join("data/postmaster.pid");
        let pid = std::fs::read_to_string(&file).map_err(|error| failed("reading postmaster.pid", error))?;
        output("kill", &["-9", pid.lines().next().unwrap_or_default()])?;
        self.stop(true).await
    }

    /// Starts the server, or starts it again: on the same data and port.
    ///
    /// # Errors
    /// [`ProvisionError::Start`] with the end of its log.
    pub async fn restart(&mut self) -> Result<(), ProvisionError> {
        self.stop(true).await?;
        let (ready, is_ready) = oneshot::channel();
        let (ended, gone) = oneshot::channel();
        let mut keeper = self.spawn()?;
        let log = keeper.stderr.take().ok_or_else(|| ProvisionError::Start("its log cannot be read".into()))?;
        std::thread::spawn(move || follow(log, ready, ended));
        self.running = Some(Running { keeper, gone });
        match tokio::time::timeout(START_LIMIT, is_ready).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(log))) => Err(ProvisionError::Start(log)),
            Ok(Err(_)) => Err(ProvisionError::Start("its log ended".into())),
            Err(_) => Err(ProvisionError::Start(format!("not ready within {START_LIMIT:?}"))),
        }
    }

    fn spawn(&self) -> Result<Child, ProvisionError> {
        let settings = [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            "fsync=on".to_owned(),
            "synchronous_commit=on".to_owned(),
            "shared_buffers=64MB".to_owned(),
            "max_connections=300".to_owned(),
            "restart_after_crash=off".to_owned(),
            "lc_messages=C".to_owned(),
        ];
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(&self.folder).arg(&self.binaries).arg(if self.root { UNPRIVILEGED } else { "" });
        for setting in settings {
            command.arg("-c").arg(setting);
        }
        // A group of its own: the signal that interrupts the tests must not end the keeper before it has ended the server.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        command.spawn().map_err(|error| failed("sh", error))
    }

    /// Ends the server, if it runs, and waits for its end.
    async fn stop(&mut self, keep: bool) -> Result<(), ProvisionError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        end(&mut running.keeper, keep)?;
        match tokio::time::timeout(START_LIMIT, &mut running.gone).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ProvisionError::Start("the old server does not end".into())),
        }
    }
}

impl Drop for PgServer {
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        // The keeper ends by itself once its input is closed; when it cannot be waited for there is nothing left to do.
        if let Err(error) = end(&mut running.keeper, false) {
            tracing::debug!(%error, "the keeper of the test server did not end in order");
        }
    }
}

fn end(keeper: &mut Child, keep: bool) -> Result<(), ProvisionError> {
    let mut input = keeper.stdin.take();
    if let Some(input) = input.as_mut().filter(|_| keep) {
        input.write_all(b"keep\n").map_err(|error| failed("the server's keeper", error))?;
    }
    drop(input);
    keeper.wait().map_err(|error| failed("the server's keeper", error))?;
    Ok(())
}

/// Reads the server's log: says when it is ready, or what it said before it ended, and then when all its processes are gone.
fn follow(log: impl Read, ready: oneshot::Sender<Result<(), String>>, gone: oneshot::Sender<()>) {
    let mut ready = Some(ready);
    let mut last = VecDeque::new();
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        if line.contains("database system is ready to accept connections")
            && let Some(ready) = ready.take()
        {
            // Nobody may be waiting any more.
            drop(ready.send(Ok(())));
        }
        if last.len() == LOG_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    if let Some(ready) = ready {
        drop(ready.send(Err(Vec::from(last).join("\n"))));
    }
    drop(gone);
}

fn output(program: &str, arguments: &[&str]) -> Result<String, ProvisionError> {
    let done = Command::new(program).args(arguments).current_dir("/").stdin(Stdio::null()).output().map_err(|error| failed(program, error))?;
    if !done.status.success() {
        return Err(failed(program, String::from_utf8_lossy(&done.stderr)));
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

fn find_binaries() -> Option<PathBuf> {
    let complete = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(folder) = std::env::split_paths(&path).find(complete) {
        return Some(folder);
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<_> = versions.flatten().map(|version| version.path().join("bin")).filter(complete).collect();
    folders.sort();
    folders.pop()
}

/// A new folder that the server's user owns. Not under `TMPDIR`, which that user may not be able to enter.
fn make_folder(root: bool) -> Result<PathBuf, ProvisionError> {
    let folder = Path::new("/var/tmp").join(format!("harvest-test-postgres-{}", super::unique()));
    std::fs::create_dir(&folder).map_err(|error| failed("making a data folder", error))?;
    if root {
        let user = output("id", &["-u", "postgres"])?.parse().map_err(|error| failed("id -u postgres", error))?;
        std::os::unix::fs::chown(&folder, Some(user), None).map_err(|error| failed("chown", error))?;
    }
    Ok(folder)
}

fn free_port() -> Result<u16, ProvisionError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| failed("finding a free port", error))?;
    Ok(listener.local_addr().map_err(|error| failed("finding a free port", error))?.port())
}
