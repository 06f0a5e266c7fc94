//! Seeds, each in a process of its own.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Begins the line that a seed ends with.
pub const TRACE: &str = "trace ";
/// Seeds of a normal test run, about 20 s on two cores.
const SEEDS: u64 = 6;
/// Seeds that found something, first.
const FAILED_ONCE: [u64; 1] = [13];
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// A number from the environment.
pub fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// How a seed went.
pub struct Passed {
    /// Its trace: hash and length.
    pub trace: String,
}

fn command(seed: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its program"));
    command.args(["one_seed", "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env("HARVEST_SIM_SEED", seed.to_string());
    command
}

/// Runs one seed quietly.
///
/// # Errors
/// All that it printed.
pub fn run(seed: u64) -> Result<Passed, String> {
    let output = command(seed).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let trace = text.lines().find(|line| line.starts_with(TRACE));
    match trace.filter(|_| output.status.success()) {
        Some(trace) => Ok(Passed { trace: trace.to_owned() }),
        None => Err(format!("{text}\n{}\nreplay it: ./x sim --seed {seed}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs one seed with its trace on the terminal.
fn replay(seed: u64) {
    let status = command(seed).env("HARVEST_SIM_PRINT", "1").stdin(Stdio::null()).status().expect("the test's own program starts");
    assert!(status.success(), "seed {seed} fails");
}

/// Runs the seeds that the environment asks for.
pub fn run_all() {
    if let Some(seed) = variable("HARVEST_SIM_SEED") {
        return replay(seed);
    }
    let minutes = variable("HARVEST_SIM_MINUTES");
    let from = variable("HARVEST_SIM_FROM").unwrap_or(0);
    let count = variable("HARVEST_SIM_SEEDS").unwrap_or(if minutes.is_some() { u64::MAX - from } else { SEEDS });
    let all = Mutex::new(FAILED_ONCE.into_iter().chain(from..from + count));
    let (began, done, failed) = (now(), AtomicU64::new(0), Mutex::new(Vec::new()));
    let jobs = variable("HARVEST_SIM_JOBS").unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| u64::try_from(cores.get()).unwrap_or(1)));
    let late = || minutes.is_some_and(|minutes| began.elapsed() >= Duration::from_secs(minutes * 60));
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let (all, done, failed, late) = (&all, &done, &failed, &late);
            scope.spawn(move || {
                let mut shown = now();
                while !late() && failed.lock().is_ok_and(|failed: std::sync::MutexGuard<'_, Vec<(u64, String)>>| failed.is_empty()) {
                    let Some(seed) = all.lock().ok().and_then(|mut all| all.next()) else { return };
                    if let Err(failure) = run(seed) {
                        if let Ok(mut failed) = failed.lock() {
                            failed.push((seed, failure));
                        }
                        return;
                    }
                    let passed = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if job == 0 && shown.elapsed() >= PROGRESS {
                        shown = now();
                        println!("{passed} seeds passed in {} s", began.elapsed().as_secs());
                    }
                }
            });
        }
    });
    println!("{} seeds passed in {} s", done.load(Ordering::Relaxed), began.elapsed().as_secs());
    let failed = failed.into_inner().unwrap_or_default();
    assert!(failed.is_empty(), "{}", failed.iter().map(|(seed, failure)| format!("seed {seed} fails\n{failure}")).collect::<String>());
}

#[expect(clippy::disallowed_methods, reason = "how long real processes take")]
fn now() -> Instant {
    Instant::now()
}
