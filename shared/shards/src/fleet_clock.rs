//! One wall clock for the whole fleet: the database's, carried on by this process's monotonic clock between two looks at it.
//!
//! Instants that several processes judge (deadlines of runs, due rows, the times of records) must come from one clock: an owner whose machine
//! is five minutes ahead would fire its successor's timers early, and its own would come late there. The machine's wall clock is used for
//! nothing but to show how far it is off.

use async_trait::async_trait;
use harvest_ids::Timestamp;
use harvest_persistence::control::DirectoryStore;
use harvest_persistence::error::StoreError;
use harvest_runtime::{Clock, metrics};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the database's clock is looked at.
const INTERVAL: Duration = Duration::from_secs(10);
/// A look that takes longer says too little: the clock was read at any moment of it.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// How often a quick look is hoped for at the start.
const FIRST_LOOKS: u32 = 3;
/// The longest single sleep until an instant, so that a database's clock that is set forward is noticed.
const LONGEST_NAP: Duration = Duration::from_secs(10);
/// Beyond this the machine's clock is worth a warning.
const NOTABLE_SKEW_MS: i64 = 1_000;

/// The database's clock as known to this process: right within half of the quickest look's round trip, and what the machine's monotonic clock
/// drifts between two looks (10 s).
pub struct FleetClock {
    machine: Arc<dyn Clock>,
    /// The database's clock less this process's monotonic one, in milliseconds; empty with a store that has no clock.
    ahead: OnceLock<AtomicI64>,
}

/// When the database's clock was read at the earliest and the latest, as bounds of [`FleetClock::ahead`].
#[derive(Debug, Clone, Copy)]
struct Look {
    least: i64,
    most: i64,
}

impl Look {
    fn took(self) -> i64 {
        self.most - self.least
    }
}

impl FleetClock {
    /// Looks at the database's clock and goes on doing so until `shutdown`. `service` is the label of the metric.
    ///
    /// # Errors
    /// When the store cannot be asked: a process that does not know the time cannot judge deadlines.
    pub async fn start(
        store: Arc<dyn DirectoryStore>,
        machine: Arc<dyn Clock>,
        service: &'static str,
        shutdown: CancellationToken,
    ) -> Result<Arc<Self>, StoreError> {
        let clock = Arc::new(Self { machine, ahead: OnceLock::new() });
        let mut best: Option<Look> = None;
        for _ in 0..FIRST_LOOKS {
            let Some(look) = clock.look(store.as_ref()).await? else { return Ok(clock) };
            best = Some(best.filter(|best| best.took() <= look.took()).unwrap_or(look));
            if is_quick(look) {
                break;
            }
        }
        if let Some(best) = best {
            clock.ahead.get_or_init(|| AtomicI64::new(i64::midpoint(best.least, best.most)));
            let mut skewed = false;
            clock.show(service, &mut skewed);
            drop(harvest_runtime::spawn("fleet clock", clock.clone().run(store, service, skewed, shutdown)));
        }
        Ok(clock)
    }

    async fn run(self: Arc<Self>, store: Arc<dyn DirectoryStore>, service: &'static str, mut skewed: bool, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.machine.sleep(INTERVAL) => {}
            }
            match self.look(store.as_ref()).await {
                Ok(Some(look)) if is_quick(look) => self.correct(look),
                Ok(_) => {}
                // The monotonic clock carries on; whoever else asks the store logs its outage.
                Err(error) => tracing::debug!(%error, "the database's clock cannot be read"),
            }
            self.show(service, &mut skewed);
        }
    }

    async fn look(&self, store: &dyn DirectoryStore) -> Result<Option<Look>, StoreError> {
        let before = millis(self.machine.monotonic());
        let Some(read) = store.now().await? else { return Ok(None) };
        let after = millis(self.machine.monotonic());
        // One more at both ends for what is lost in rounding.
        Ok(Some(Look { least: read.as_millis() - after - 1, most: read.as_millis() - before + 1 }))
    }

    /// Moves the clock as far as the look proves it wrong, and no further: a slow look moves nothing that was right.
    fn correct(&self, look: Look) {
        if let Some(ahead) = self.ahead.get() {
            ahead.store(ahead.load(Ordering::Relaxed).clamp(look.least, look.most), Ordering::Relaxed);
        }
    }

    /// Shows how far the machine's clock is off; a change of whether that is notable is logged.
    fn show(&self, service: &'static str, skewed: &mut bool) {
        let skew_ms = self.machine.now().as_millis().saturating_sub(self.now().as_millis());
        let seconds = Duration::from_millis(skew_ms.unsigned_abs()).as_secs_f64();
        metrics::CLOCK_SKEW.set(if skew_ms < 0 { -seconds } else { seconds }, [service]);
        let notable = skew_ms.abs() > NOTABLE_SKEW_MS;
        match (std::mem::replace(skewed, notable), notable) {
            (false, true) => tracing::warn!(skew_ms, "this machine's clock differs from the database's, which is used"),
            (true, false) => tracing::info!(skew_ms, "this machine's clock agrees with the database's again"),
            (true, true) | (false, false) => {}
        }
    }
}

fn is_quick(look: Look) -> bool {
    look.took() <= millis(LONGEST_LOOK)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[async_trait]
impl Clock for FleetClock {
    fn now(&self) -> Timestamp {
        match self.ahead.get() {
            Some(ahead) => Timestamp::from_millis(ahead.load(Ordering::Relaxed).saturating_add(millis(self.machine.monotonic()))),
            None => self.machine.now(),
        }
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            self.machine.sleep(left.min(LONGEST_NAP)).await;
        }
    }

    async fn sleep(&self, span: Duration) {
        self.machine.sleep(span).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeStore, settle};
    use harvest_runtime::ManualClock;

    const START_MS: i64 = 1_796_000_000_000;
    const MINUTE_MS: i64 = 60_000;

    async fn start(off_ms: i64) -> (Arc<FakeStore>, ManualClock, Arc<FleetClock>, CancellationToken) {
        let machine = ManualClock::new(Timestamp::from_millis(START_MS + off_ms));
        let store = FakeStore::new(machine.clone(), 1);
        store.set_wall(START_MS);
        let stop = CancellationToken::new();
        let clock = FleetClock::start(store.clone(), Arc::new(machine.clone()), "test", stop.clone()).await.unwrap();
        settle().await;
        (store, machine, clock, stop)
    }

    fn off(store: &FakeStore, clock: &FleetClock) -> i64 {
        clock.now().as_millis() - store.wall().as_millis()
    }

    #[tokio::test]
    async fn processes_whose_clocks_differ_by_minutes_have_one_time() {
        for off_ms in [-5 * MINUTE_MS, 0, 5 * MINUTE_MS] {
            let (store, machine, clock, _stop) = start(off_ms).await;
            assert!(off(&store, &clock).abs() <= 1, "{}", off(&store, &clock));
            for _ in 0..100 {
                machine.advance(Duration::from_millis(777));
                settle().await;
                assert!(off(&store, &clock).abs() <= 1, "{}", off(&store, &clock));
            }
        }
    }

    #[tokio::test]
    async fn a_machine_whose_clock_is_set_in_the_middle_goes_on_as_before() {
        let (store, machine, clock, _stop) = start(0).await;
        for step in [-120_000, 240_000, -120_000] {
            machine.set_wall(Timestamp::from_millis(machine.now().as_millis() + step));
            assert!(off(&store, &clock).abs() <= 1, "{}", off(&store, &clock));
        }
    }

    #[tokio::test]
    async fn a_database_whose_clock_is_set_is_followed_at_the_next_look() {
        let (store, machine, clock, _stop) = start(0).await;
        store.set_wall(store.wall().as_millis() + 3_600_000);
        machine.advance(INTERVAL);
        settle().await;
        assert!(off(&store, &clock).abs() <= 1, "{}", off(&store, &clock));
    }

    #[tokio::test]
    async fn a_look_moves_the_clock_only_as_far_as_it_proves_it_wrong() {
        let (_store, _machine, clock, _stop) = start(0).await;
        let ahead = || clock.ahead.get().unwrap().load(Ordering::Relaxed);
        let before = ahead();
        clock.correct(Look { least: before - 400, most: before + 100 });
        assert_eq!(ahead(), before, "it may be right");
        clock.correct(Look { least: before + 5, most: before + 300 });
        assert_eq!(ahead(), before + 5);
    }

    #[tokio::test]
    async fn an_outage_of_the_database_stops_no_clock() {
        let (store, machine, clock, _stop) = start(5 * MINUTE_MS).await;
        store.failing.store(true, Ordering::Relaxed);
        for _ in 0..60 {
            machine.advance(INTERVAL);
            settle().await;
        }
        assert!(off(&store, &clock).abs() <= 1, "{}", off(&store, &clock));
    }
}
