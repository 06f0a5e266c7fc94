//! Crash points: named places where a test lets the process die or freeze, at exactly that line.
//!
//! Inert unless the environment says otherwise when the process starts: then a pass costs one relaxed load. A point is a plain call,
//! present in every build, so that what is tested is what ships.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The environment variable that arms a point: `name[:nth][:kill|stop]`, e.g. `history.before_send:3:stop`.
pub const VARIABLE: &str = "HARVEST_CRASH_POINT";

static ARMED: AtomicBool = AtomicBool::new(false);
static POINT: OnceLock<Point> = OnceLock::new();

#[derive(Debug)]
struct Point {
    name: String,
    nth: u32,
    signal: Signal,
    passes: AtomicU32,
}

/// Why [`VARIABLE`] was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE} is {0:?}; allowed is name[:nth][:kill|stop] with nth from 1")]
pub struct CrashPointError(String);

/// A place where the armed process kills or stops itself, at the chosen pass.
#[inline]
pub fn point(name: &str) {
    if ARMED.load(Ordering::Relaxed) {
        pass(name);
    }
}

/// Arms the point that [`VARIABLE`] names, if any. Called once by [`crate::boot::main`]; a later call changes nothing.
///
/// # Errors
/// [`CrashPointError`] when the value is malformed: a test that never crashes would pass for the wrong reason.
pub fn arm_from_environment() -> Result<(), CrashPointError> {
    match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => {
            let point = parse(&text)?;
            tracing::warn!(point = point.name, nth = point.nth, signal = %point.signal, "crash point armed");
            if POINT.set(point).is_ok() {
                ARMED.store(true, Ordering::Relaxed);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn parse(text: &str) -> Result<Point, CrashPointError> {
    let refuse = || CrashPointError(text.to_owned());
    let mut parts = text.split(':');
    let name = parts.next().filter(|name| !name.is_empty()).ok_or_else(refuse)?;
    let mut point = Point { name: name.to_owned(), nth: 1, signal: Signal::SIGKILL, passes: AtomicU32::new(0) };
    let mut rest: Vec<&str> = parts.collect();
    match rest.last().copied() {
        Some("kill") => _ = rest.pop(),
        Some("stop") => {
            point.signal = Signal::SIGSTOP;
            rest.pop();
        }
        _ => {}
    }
    match rest.as_slice() {
        [] => {}
        [nth] => point.nth = nth.parse().ok().filter(|nth| *nth > 0).ok_or_else(refuse)?,
        _ => return Err(refuse()),
    }
    Ok(point)
}

#[cold]
fn pass(name: &str) {
    let Some(point) = POINT.get() else { return };
    if point.name == name && point.passes.fetch_add(1, Ordering::Relaxed) + 1 == point.nth {
        tracing::warn!(point = name, "crash point reached");
        kill(Pid::this(), point.signal).expect("a process may signal itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_point_is_inert_unless_armed() {
        for _ in 0..1_000 {
            point("test.point");
        }
        assert!(!ARMED.load(Ordering::Relaxed));
        assert!(POINT.get().is_none());
    }

    #[test]
    fn the_variable_names_a_point_a_pass_and_a_signal() {
        let read = |text: &str| parse(text).map(|point| (point.name, point.nth, point.signal));
        assert_eq!(read("a.b"), Ok(("a.b".into(), 1, Signal::SIGKILL)));
        assert_eq!(read("a.b:3"), Ok(("a.b".into(), 3, Signal::SIGKILL)));
        assert_eq!(read("a.b:stop"), Ok(("a.b".into(), 1, Signal::SIGSTOP)));
        assert_eq!(read("a.b:2:kill"), Ok(("a.b".into(), 2, Signal::SIGKILL)));
        for bad in ["", ":1", "a:0", "a:x", "a:1:die", "a:1:2:kill"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    /// Runs only as the child of the test below.
    #[test]
    #[ignore = "child of an_armed_process_dies_at_the_nth_pass_of_its_point"]
    fn child_passes_its_point_five_times() {
        arm_from_environment().unwrap();
        for pass in 1..=5 {
            point("other.point");
            println!("pass {pass}");
            point("test.point");
        }
    }

    #[test]
    fn an_armed_process_dies_at_the_nth_pass_of_its_point() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::tests::child_passes_its_point_five_times", "--ignored", "--nocapture"])
            .env(VARIABLE, "test.point:3")
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(9));
        let output = String::from_utf8(child.stdout).unwrap();
        assert!(output.contains("pass 3") && !output.contains("pass 4"), "{output}");
    }
}
