//! A clock on tokio's paused time.

use async_trait::async_trait;
use harvest_ids::Timestamp;
use harvest_runtime::Clock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What the wall shows when a test begins.
const START_MS: i64 = 1_796_000_000_000;

/// One process's clocks. Unlike `ManualClock` it wakes sleepers in an order that repeats, so that a simulation on it does.
#[derive(Debug)]
pub(super) struct TestClock {
    start: Instant,
    /// How far this process's wall clock is off, in milliseconds.
    skew: AtomicI64,
}

impl TestClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), skew: AtomicI64::new(0) }
    }

    /// A clock of the same time that is off.
    pub(super) fn skewed(&self, skew_ms: i64) -> Self {
        Self { start: self.start, skew: AtomicI64::new(skew_ms) }
    }
}

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.start.elapsed().as_millis()).expect("tests do not run for ages");
        Timestamp::from_millis(START_MS + elapsed + self.skew.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.sleep(at.since(self.now())).await;
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await; // sleep: this is the clock
    }
}
