//! Reads due rows ahead of time, keeps them on the wheel, and tells owners when their time has come.

#[cfg(test)]
mod tests;

use crate::owner::Owners;
use crate::wheel::{Run, Wheel};
use harvest_ids::{ExecutionId, ShardId, Timestamp};
use harvest_persistence::control::ServiceKind;
use harvest_persistence::store::ShardStore;
use harvest_proto::internal::v1::FireTimersCall;
use harvest_rpc::{Error, Reason};
use harvest_runtime::{Clock, crash, metrics};
use harvest_shards::{Directory, placement};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// Most runs in one call to an owner.
const MAX_RUNS: usize = 500;
/// How long an owner may take to answer.
const FIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most calls to owners in flight.
const MAX_CALLS: usize = 64;
/// Pause after an owner could not be told, doubling up to [`MAX_RETRY`].
const RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(1);
/// A scan that found more than it may read is followed by the next this soon.
const SCAN_ON: Duration = Duration::from_millis(200);

/// Sizes and times of scanning.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How far ahead rows are read.
    pub horizon: Duration,
    /// How often, while something is near.
    pub busy_interval: Duration,
    /// How often, while nothing is. Below the horizon, so that no row comes due between two scans unread.
    pub idle_interval: Duration,
    /// Most rows of one scan.
    pub scan_limit: u32,
    /// Most deadlines in memory.
    pub max_armed: usize,
}

/// The scanner. Cheap to clone; all clones share it.
#[derive(Clone)]
pub(crate) struct Scanner {
    shared: Arc<Shared>,
}

struct Shared {
    me: String,
    store: Arc<dyn ShardStore>,
    owners: Arc<dyn Owners>,
    directory: Directory,
    clock: Arc<dyn Clock>,
    options: Options,
    state: Mutex<State>,
    /// Something earlier than before is on the wheel.
    earlier: Notify,
    calls: Semaphore,
}

#[derive(Debug)]
struct State {
    wheel: Wheel,
    shards: BTreeSet<ShardId>,
    /// Failures in a row of each shard whose owner could not be told.
    failures: BTreeMap<ShardId, u32>,
    failing: bool,
}

impl Scanner {
    pub(crate) fn new(me: String, store: Arc<dyn ShardStore>, owners: Arc<dyn Owners>, directory: Directory, clock: Arc<dyn Clock>, options: Options) -> Self {
        let state = State { wheel: Wheel::new(options.max_armed), shards: BTreeSet::new(), failures: BTreeMap::new(), failing: false };
        let shared =
            Shared { me, store, owners, directory, clock, options, state: Mutex::new(state), earlier: Notify::new(), calls: Semaphore::new(MAX_CALLS) };
        Self { shared: Arc::new(shared) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no code panics while it holds this lock")
    }

    /// Takes deadlines that an owner has announced. Far ones are left to the scan.
    pub(crate) fn announce(&self, shard: ShardId, deadlines: impl IntoIterator<Item = (ExecutionId, Timestamp)>) {
        let (learned, now) = (self.shared.clock.monotonic(), self.shared.clock.now());
        let is_earlier = {
            let mut state = self.state();
            let before = state.wheel.next();
            for (id, due) in deadlines {
                if due.since(now) <= self.shared.options.horizon {
                    state.wheel.announce(learned, (shard, id), due);
                }
            }
            state.wheel.next() != before
        };
        if is_earlier {
            self.shared.earlier.notify_one();
        }
    }

    /// Scans and fires until `shutdown`.
    pub(crate) async fn run(&self, shutdown: CancellationToken) {
        tokio::join!(self.scan_until(&shutdown), self.fire_until(&shutdown));
    }

    async fn fire_until(&self, shutdown: &CancellationToken) {
        loop {
            let (due, next) = {
                let mut state = self.state();
                (state.wheel.take_due(self.shared.clock.now()), state.wheel.next())
            };
            for (shard, runs) in due {
                for chunk in runs.chunks(MAX_RUNS) {
                    let (scanner, chunk) = (self.clone(), chunk.to_vec());
                    drop(harvest_runtime::spawn("fire timers", async move { scanner.fire(shard, chunk).await }));
                }
            }
            let clock = &self.shared.clock;
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.shared.earlier.notified() => {}
                () = async { clock.sleep_until(next.unwrap_or_default()).await }, if next.is_some() => {}
            }
        }
    }

    async fn fire(&self, shard: ShardId, runs: Vec<ExecutionId>) {
        let told = {
            let Ok(_permit) = self.shared.calls.acquire().await else { return };
            self.tell_owner(shard, &runs).await
        };
        let now = self.shared.clock.now();
        if let Err(error) = told {
            tracing::debug!(%shard, %error, "the owner could not be told of due runs");
            match error.owner_address() {
                Some(address) => self.shared.directory.hint(shard, address),
                // The last view stays if this fails, and the next try is soon.
                None => drop(self.shared.directory.refresh_now().await),
            }
            let mut state = self.state();
            let failures = state.failures.entry(shard).or_insert(0);
            let pause = RETRY.saturating_mul(1 << (*failures).min(10)).min(MAX_RETRY);
            *failures = failures.saturating_add(1);
            let again = now.as_millis().saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
            state.wheel.not_told(Timestamp::from_millis(again), shard, &runs);
            drop(state);
            self.shared.earlier.notify_one();
            return;
        }
        metrics::SCANNER_FIRED.add(u64::try_from(runs.len()).unwrap_or(u64::MAX), []);
        let mut state = self.state();
        state.failures.remove(&shard);
        state.wheel.told(now, shard, &runs);
    }

    async fn tell_owner(&self, shard: ShardId, runs: &[ExecutionId]) -> Result<(), Error> {
        let owner = self.shared.directory.owner(shard).ok_or_else(|| Error::unavailable("nobody owns the shard"))?;
        let execution_ids = runs.iter().map(|id| bytes::Bytes::copy_from_slice(id.as_uuid().as_bytes())).collect();
        let call = FireTimersCall { shard_id: shard.0, execution_ids };
        tokio::select! {
            told = self.shared.owners.fire_timers(&owner.address, call) => told,
            () = self.shared.clock.sleep(FIRE_TIMEOUT) => Err(Error::new(Reason::DeadlineExceeded, "the owner does not answer")),
        }
    }

    async fn scan_until(&self, shutdown: &CancellationToken) {
        let clock = self.shared.clock.clone();
        let mut changes = self.shared.directory.changes();
        let (mut wait, mut quiet) = (Duration::ZERO, Duration::ZERO);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = clock.sleep(wait) => {}
                () = self.shards_change(&mut changes) => {}
            }
            self.choose_shards();
            wait = self.scan().await;
            if wait == self.shared.options.idle_interval {
                // Nothing near: from the busy interval to the idle one, doubling.
                quiet = (quiet * 2).clamp(self.shared.options.busy_interval, self.shared.options.idle_interval);
                wait = quiet;
            } else {
                quiet = Duration::ZERO;
            }
        }
    }

    /// Returns when other shards than before are this scanner's.
    async fn shards_change(&self, changes: &mut watch::Receiver<u64>) {
        while changes.changed().await.is_ok() {
            if self.my_shards() != self.state().shards {
                return;
            }
        }
        std::future::pending().await // the directory has ended, and with it the process
    }

    fn my_shards(&self) -> BTreeSet<ShardId> {
        let snapshot = self.shared.directory.snapshot();
        let is_mine =
            |shard: &ShardId| snapshot.place(ServiceKind::TimerScanner, &placement::shard(*shard)).is_some_and(|member| member.process_id == self.shared.me);
        snapshot.shards().into_iter().filter(is_mine).collect()
    }

    fn choose_shards(&self) {
        let mine = self.my_shards();
        let mut state = self.state();
        if state.shards != mine {
            tracing::info!(shards = mine.len(), "this scanner's shards have changed");
            state.wheel.keep(&mine);
            state.failures.retain(|shard, _| mine.contains(shard));
            state.shards = mine;
        }
    }

    /// One statement for all shards. Returns when to scan again.
    async fn scan(&self) -> Duration {
        let options = &self.shared.options;
        let (began, now) = (self.shared.clock.monotonic(), self.shared.clock.now());
        let shards: BTreeSet<ShardId> = {
            let state = self.state();
            // A shard whose owner is away must not fill every scan with its overdue rows: what is on the wheel of it is enough.
            let enough = usize::try_from(options.scan_limit / 4).unwrap_or(usize::MAX);
            let crowded = |shard: &ShardId| state.failures.contains_key(shard) && state.wheel.count(*shard) >= enough;
            state.shards.iter().filter(|shard| !crowded(shard)).copied().collect()
        };
        if shards.is_empty() {
            return options.busy_interval;
        }
        let horizon = i64::try_from(options.horizon.as_millis()).unwrap_or(i64::MAX);
        let until = Timestamp::from_millis(now.as_millis().saturating_add(horizon));
        let asked: Vec<ShardId> = shards.iter().copied().collect();
        let read = self.shared.store.due(&asked, until, options.scan_limit).await;
        crash::point("timer_scanner.read");
        let mut state = self.state();
        let rows: Vec<(Run, Timestamp)> = match read {
            Ok(rows) => rows.into_iter().map(|(shard, row)| ((shard, row.execution_id), row.due_at)).collect(),
            Err(error) => {
                metrics::SCANNER_TICK.add(1, ["failed"]);
                if !std::mem::replace(&mut state.failing, true) {
                    tracing::warn!(%error, "due rows cannot be read");
                }
                return options.busy_interval;
            }
        };
        state.failing = false;
        let full = u32::try_from(rows.len()).is_ok_and(|count| count >= options.scan_limit);
        // A full scan saw everything before its last row; rows due at the same time as that one may have been cut off.
        let covered = rows.last().filter(|_| full).map_or(until, |(_, due)| *due);
        state.wheel.scanned(began, now, &shards, covered, &rows);
        let near = state.wheel.len() > 0;
        metrics::SCANNER_ARMED.set_count(u64::try_from(state.wheel.len()).unwrap_or(u64::MAX), []);
        drop(state);
        self.shared.earlier.notify_one();
        metrics::SCANNER_TICK.add(1, [if rows.is_empty() { "idle" } else { "rows" }]);
        match (full, near) {
            (true, _) => SCAN_ON,
            (false, true) => options.busy_interval,
            (false, false) => options.idle_interval,
        }
    }
}
