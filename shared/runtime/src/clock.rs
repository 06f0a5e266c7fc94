//! Time as a parameter: the wall clock for what is recorded, a monotonic one for intervals.

use async_trait::async_trait;
use harvest_ids::Timestamp;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The longest single sleep of [`SystemClock`] before it looks at the wall clock again, so that a wall clock that is set forward is noticed.
const MAX_NAP: Duration = Duration::from_secs(10);

/// The environment variable that sets the wall clock of a process under test ahead, in milliseconds (negative: back), as on a machine whose
/// clock is off.
pub const SKEW_VARIABLE: &str = "HARVEST_CLOCK_SKEW_MS";

static SKEW_MS: AtomicI64 = AtomicI64::new(0);

/// Why [`SKEW_VARIABLE`] was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{SKEW_VARIABLE} is {0:?}; allowed is a number of milliseconds, at most a day either way")]
pub struct SkewError(String);

/// Sets the wall clock of this process off by what [`SKEW_VARIABLE`] says, if anything. Called once by [`crate::boot::main`].
///
/// # Errors
/// [`SkewError`] when the value is malformed: a test on a clock that is right would pass for the wrong reason.
pub fn skew_from_environment() -> Result<(), SkewError> {
    const DAY_MS: i64 = 86_400_000;
    let Some(text) = std::env::var(SKEW_VARIABLE).ok().filter(|text| !text.is_empty()) else { return Ok(()) };
    let skew_ms = text.parse().ok().filter(|skew_ms| (-DAY_MS..=DAY_MS).contains(skew_ms)).ok_or_else(|| SkewError(text.clone()))?;
    tracing::warn!(skew_ms, "the wall clock is set off for a test");
    SKEW_MS.store(skew_ms, Ordering::Relaxed);
    Ok(())
}

/// A source of time.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, whole milliseconds. It may be set back: never use it to measure intervals.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point of this clock; never goes backwards.
    fn monotonic(&self) -> Duration;

    /// Returns when the wall clock has reached `at`.
    async fn sleep_until(&self, at: Timestamp);

    /// Returns after `span`, measured monotonically.
    async fn sleep(&self, span: Duration);
}

/// The machine's clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The machine's clocks.
    #[allow(clippy::disallowed_methods)] // the one place that reads the monotonic clock
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // the one place that reads the wall clock
    fn now(&self) -> Timestamp {
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX).saturating_add(SKEW_MS.load(Ordering::Relaxed)))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[allow(clippy::disallowed_methods)] // the one place that sleeps
    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(MAX_NAP)).await;
        }
    }

    #[allow(clippy::disallowed_methods)] // the one place that sleeps
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// A clock for tests: it stands still until it is moved, and whoever sleeps on it wakes when it has been moved far enough.
#[derive(Debug, Clone)]
pub struct ManualClock {
    shared: Arc<ManualShared>,
}

#[derive(Debug)]
struct ManualShared {
    state: Mutex<ManualState>,
    moved: watch::Sender<Duration>,
    sleepers: watch::Sender<usize>,
}

#[derive(Debug)]
struct ManualState {
    wall_millis: i64,
    elapsed: Duration,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        let state = Mutex::new(ManualState { wall_millis: now.as_millis(), elapsed: Duration::ZERO });
        Self { shared: Arc::new(ManualShared { state, moved: watch::channel(Duration::ZERO).0, sleepers: watch::channel(0).0 }) }
    }

    /// Moves both clocks forward and wakes whoever has slept long enough.
    pub fn advance(&self, span: Duration) {
        let elapsed = {
            let mut state = self.state();
            let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
            state.wall_millis = state.wall_millis.saturating_add(millis);
            state.elapsed += span;
            state.elapsed
        };
        self.shared.moved.send_replace(elapsed);
    }

    /// Sets the wall clock alone, forward or back, as an operator or NTP would.
    pub fn set_wall(&self, now: Timestamp) {
        let elapsed = {
            let mut state = self.state();
            state.wall_millis = now.as_millis();
            state.elapsed
        };
        self.shared.moved.send_replace(elapsed);
    }

    /// Returns once at least `count` tasks sleep on this clock: then the code under test has come to rest.
    pub async fn wait_for_sleepers(&self, count: usize) {
        let mut sleepers = self.shared.sleepers.subscribe();
        sleepers.wait_for(|now| *now >= count).await.expect("the sender lives in this clock");
    }

    fn state(&self) -> MutexGuard<'_, ManualState> {
        self.shared.state.lock().expect("no code panics while it holds this lock")
    }

    async fn sleep_while(&self, mut asleep: impl FnMut(&ManualState) -> bool + Send) {
        let mut moved = self.shared.moved.subscribe();
        if !asleep(&self.state()) {
            return;
        }
        let _counted = Sleeper::enter(&self.shared.sleepers);
        loop {
            moved.changed().await.expect("the sender lives in this clock");
            if !asleep(&self.state()) {
                return;
            }
        }
    }
}

/// Counts one sleeping task, also when its future is dropped.
struct Sleeper<'a>(&'a watch::Sender<usize>);

impl<'a> Sleeper<'a> {
    fn enter(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|now| *now += 1);
        Self(count)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|now| *now -= 1);
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.state().wall_millis)
    }

    fn monotonic(&self) -> Duration {
        self.state().elapsed
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.sleep_while(|state| state.wall_millis < at.as_millis()).await;
    }

    async fn sleep(&self, span: Duration) {
        let end = self.monotonic() + span;
        self.sleep_while(|state| state.elapsed < end).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleeper_on_the_manual_clock_wakes_only_when_it_is_moved_far_enough() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let sleeper = crate::spawn("sleeper", {
            let clock = clock.clone();
            async move {
                clock.sleep_until(Timestamp::from_millis(1_500)).await;
                clock.now()
            }
        });
        clock.wait_for_sleepers(1).await;
        clock.advance(Duration::from_millis(499));
        clock.wait_for_sleepers(1).await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_millis(1));
        assert_eq!(sleeper.await.unwrap(), Timestamp::from_millis(1_500));
    }

    #[test]
    fn setting_the_wall_clock_back_does_not_move_the_monotonic_one() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        clock.advance(Duration::from_secs(1));
        clock.set_wall(Timestamp::from_millis(5));
        assert_eq!((clock.now().as_millis(), clock.monotonic()), (5, Duration::from_secs(1)));
    }
}
