//! One process under test: started, killed, stopped, continued, restarted. It dies when its handle is dropped and when the test process dies.

use crate::binaries;
use crate::eventually::holds;
use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How long a process may take to be gone after SIGKILL: the kernel is quick, a loaded machine is not.
const GONE: Duration = Duration::from_secs(20);
/// Log lines that are shown of a process when a test fails.
const SHOWN_LINES: usize = 60;

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// For people, and the name of the log file.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment, added to the test's own.
    pub environment: BTreeMap<String, String>,
}

impl Program {
    /// The same program with a limit of its files in reach: it ignores SIGXFSZ, and its output goes through a `cat` without that limit.
    #[must_use]
    pub fn limitable(mut self) -> Self {
        let script = r#"trap "" XFSZ; exec "$0" "$@" > >(exec cat) 2>&1"#;
        let program = std::mem::replace(&mut self.path, PathBuf::from("bash"));
        self.arguments.splice(0..0, ["-c".to_owned(), script.to_owned(), program.display().to_string()]);
        self
    }
}

/// A process that can be ended and started again.
pub struct Process {
    program: Mutex<Program>,
    log: PathBuf,
    running: Mutex<Option<Running>>,
}

struct Running {
    pid: Pid,
    ended: watch::Receiver<Option<ExitStatus>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Starts a program; its output goes to `folder`/name.log.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: Program, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{}.log", program.name));
        let process = Self { program: Mutex::new(program), log, running: Mutex::new(None) };
        process.launch()?;
        Ok(process)
    }

    /// Its name.
    pub fn name(&self) -> String {
        lock(&self.program).name.clone()
    }

    /// Where its output is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it runs (a stopped one does).
    pub fn is_running(&self) -> bool {
        lock(&self.running).as_ref().is_some_and(|running| running.ended.borrow().is_none())
    }

    /// Its process number, while it runs.
    pub fn pid(&self) -> Option<i32> {
        lock(&self.running).as_ref().filter(|running| running.ended.borrow().is_none()).map(|running| running.pid.as_raw())
    }

    /// SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// When it does not go.
    pub async fn kill9(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.wait(GONE).await.map(|_| ())
    }

    /// SIGTERM; does not wait.
    ///
    /// # Errors
    /// When it does not run.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// SIGINT; does not wait.
    ///
    /// # Errors
    /// When it does not run.
    pub fn interrupt(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGINT)
    }

    /// SIGSTOP: it is frozen, its connections stay open.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Lets it write no file beyond this many bytes: every write of an embedded store then fails as on a full disk. `None` lifts the limit.
    /// Only for a process that ignores SIGXFSZ and whose output goes through another one, see [`Program::limitable`].
    ///
    /// # Errors
    /// When it does not run or there is no `prlimit`.
    pub fn limit_files(&self, bytes: Option<u64>) -> anyhow::Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.name()))?;
        let prlimit = binaries::system("prlimit").context("no prlimit; on Debian: apt-get install util-linux")?;
        // The soft limit alone: it can be raised again without privileges.
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let done = Command::new(prlimit).args([format!("--pid={pid}"), format!("--fsize={limit}:")]).output()?;
        anyhow::ensure!(done.status.success(), "prlimit: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let running = lock(&self.running);
        let running = running.as_ref().filter(|running| running.ended.borrow().is_none());
        let pid = running.with_context(|| format!("{} does not run", self.name()))?.pid;
        kill(pid, signal).with_context(|| format!("{signal} to {}", self.name()))
    }

    /// Waits until it has ended and says how.
    ///
    /// # Errors
    /// When it does not end within `longest`, or never ran.
    pub async fn wait(&self, longest: Duration) -> anyhow::Result<ExitStatus> {
        let mut ended = lock(&self.running).as_ref().with_context(|| format!("{} never ran", self.name()))?.ended.clone();
        let status = tokio::time::timeout(longest, ended.wait_for(Option::is_some)).await;
        let status = status.with_context(|| format!("{} has not ended within {longest:?}", self.name()))??;
        status.context("it waits for an end")
    }

    /// Waits until the process has stopped itself (state `T`): a crash point with `stop` was reached.
    ///
    /// # Errors
    /// When it does not within `longest`.
    pub async fn wait_frozen(&self, longest: Duration) -> anyhow::Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.name()))?;
        holds(format!("{} has stopped itself", self.name()), longest, || {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')))
        })
        .await
    }

    /// Starts it again, with changes of its environment (an empty value removes a variable).
    ///
    /// # Errors
    /// When it still runs or cannot be started.
    pub fn restart(&self, changes: &[(&str, &str)]) -> anyhow::Result<()> {
        anyhow::ensure!(!self.is_running(), "{} still runs", self.name());
        {
            let mut program = lock(&self.program);
            for (name, value) in changes {
                if value.is_empty() {
                    program.environment.remove(*name);
                } else {
                    program.environment.insert((*name).to_owned(), (*value).to_owned());
                }
            }
        }
        self.launch()
    }

    fn launch(&self) -> anyhow::Result<()> {
        let program = lock(&self.program).clone();
        let output = File::options().create(true).append(true).open(&self.log).with_context(|| format!("opening {}", self.log.display()))?;
        // The kernel kills the child when the thread that started it is gone; the thread that starts all of them lives as long as the process.
        let mut command = match binaries::system("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(&program.path);
                command
            }
            None => Command::new(&program.path),
        };
        command.args(&program.arguments).envs(&program.environment);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = spawn(command).with_context(|| format!("starting {}", program.path.display()))?;
        let pid = Pid::from_raw(i32::try_from(child.id()).context("a process number")?);
        *lock(&self.running) = Some(Running { pid, ended: reap(child) });
        Ok(())
    }

    /// The last lines of its log.
    pub fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // It may have ended by itself in this instant: then there is nothing to kill.
            if let Err(error) = kill(Pid::from_raw(pid), Signal::SIGKILL) {
                tracing::debug!(%error, "a process under test was gone already");
            }
        }
    }
}

/// Waits for the child in a thread of its own, so that it is never a zombie that looks alive.
fn reap(mut child: Child) -> watch::Receiver<Option<ExitStatus>> {
    let (ended, is_ended) = watch::channel(None);
    std::thread::spawn(move || {
        if let Ok(status) = child.wait() {
            ended.send_replace(Some(status));
        }
    });
    is_ended
}

type Order = (Command, SyncSender<std::io::Result<Child>>);

/// Starts a command on the one thread that starts all of them.
fn spawn(command: Command) -> anyhow::Result<Child> {
    static STARTER: OnceLock<SyncSender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, waiting): (SyncSender<Order>, Receiver<Order>) = sync_channel(16);
        std::thread::spawn(move || {
            for (mut command, reply) in waiting {
                // The one who asked waits for the answer.
                drop(reply.send(command.spawn()));
            }
        });
        orders
    });
    let (reply, answer) = sync_channel(1);
    starter.send((command, reply)).context("the thread that starts processes is gone")?;
    Ok(answer.recv().context("the thread that starts processes is gone")??)
}
