//! Runs kept in memory between their tasks, the least recently used dropped first.
//!
//! A run that is being worked on is not in it. One that decides ahead ([`RunCache::lend`]) has seen an event that the server may never write: it
//! comes back only when the server has said that it did, and until then those who want the run wait for that, or replay.

use crate::workflow::run::{Run, ServerClock};
use harvest_ids::Timestamp;
use harvest_workflow_core::event::Event;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a task waits for the answer to a decision ahead: the answer was on its way before the task was. Then the run is replayed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most results of a run that wait to be sent one by one, each with its decision.
const MAX_IN_LINE: usize = 2;

#[derive(Default)]
struct Entries {
    by_run: HashMap<String, (u64, Run)>,
    by_age: BTreeMap<u64, String>,
    ahead: HashMap<String, Ahead>,
    next: u64,
}

/// A run that is lent.
struct Ahead {
    stamp: u64,
    /// The decision is on its way to the server. Until then its code is deciding.
    sent: bool,
    line: Arc<Line>,
}

/// Who waits for a lent run.
#[derive(Default)]
pub(crate) struct Line {
    /// Results of other activities of the run.
    results: AtomicUsize,
    /// Tasks of the run.
    tasks: AtomicUsize,
    /// Ready when the run is back, or will not come back.
    settled: CancellationToken,
}

impl Line {
    /// Waits with another result of the run: sent now, it could overtake the decision that the run is lent for, which would be void then. Whether
    /// to ask for the run again: not when a task brings news, and not when so many results wait that they had better go together.
    pub(crate) async fn wait(&self, limit: Instant) -> bool {
        self.results.fetch_add(1, Ordering::AcqRel);
        let settled = tokio::time::timeout_at(limit, self.settled.cancelled()).await.is_ok();
        settled && Instant::now() < limit && self.tasks.load(Ordering::Acquire) == 0 && self.results.load(Ordering::Acquire) <= MAX_IN_LINE
    }
}

/// What comes of asking for a run that is to decide ahead.
pub(crate) enum Lending {
    /// It is here, up to date.
    Lent {
        /// The run.
        run: Run,
        /// The earliest time that its next event can have.
        next_event_at: Timestamp,
        /// What it is given back with.
        loan: Loan,
    },
    /// Another activity of the run has it.
    Awaited(Arc<Line>),
    /// It is not here, or not up to date.
    Unfit,
}

/// A lent run's claim to its place. Dropping it says that the run does not come back.
pub(crate) struct Loan {
    cache: Arc<RunCache>,
    execution_id: String,
    stamp: u64,
    line: Arc<Line>,
}

/// The cache.
pub(crate) struct RunCache {
    entries: Mutex<Entries>,
    capacity: usize,
}

impl RunCache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: Mutex::default(), capacity }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a run out. When a decision ahead of it is with the server, waits for the answer; when one is being worked out, that one is void: there
    /// is news that it has not seen.
    pub(crate) async fn take(&self, execution_id: &str) -> Option<Run> {
        let patience = Instant::now() + PATIENCE;
        loop {
            let line = {
                let mut entries = self.lock();
                if let Some(run) = entries.remove(execution_id) {
                    return Some(run);
                }
                match entries.ahead.get(execution_id) {
                    Some(ahead) if ahead.sent && Instant::now() < patience => ahead.line.clone(),
                    Some(_) | None => {
                        entries.ahead.remove(execution_id);
                        return None;
                    }
                }
            };
            line.tasks.fetch_add(1, Ordering::AcqRel);
            if tokio::time::timeout_at(patience, line.settled.cancelled()).await.is_err() {
                tracing::debug!(execution_id, "the answer to a decision ahead does not come");
            }
        }
    }

    /// Puts a run in, unless a newer state of it is there. Returns a stamp for [`RunCache::evict`].
    pub(crate) fn put(&self, execution_id: &str, run: Run) -> u64 {
        let mut entries = self.lock();
        let (stamp, dropped) = entries.put(execution_id, run, self.capacity);
        drop(entries);
        drop(dropped); // outside the lock: destructors of runs are the author's code
        stamp
    }

    /// Drops a run if it is still the one that was put in with `stamp`.
    pub(crate) fn evict(&self, execution_id: &str, stamp: u64) {
        let mut entries = self.lock();
        if entries.by_run.get(execution_id).is_some_and(|(there, _)| *there == stamp) {
            let run = entries.remove(execution_id);
            drop(entries);
            drop(run);
        }
    }

    /// Feeds events to a run if it is still the one that was put in with `stamp`. One that does not take them is dropped.
    pub(crate) fn feed(&self, execution_id: &str, stamp: u64, events: Vec<Event>, clock: ServerClock) {
        let mut entries = self.lock();
        let Some((_, run)) = entries.by_run.get_mut(execution_id).filter(|(there, _)| *there == stamp) else { return };
        match run.feed(events) {
            Ok(()) => run.set_clock(clock),
            Err(error) => {
                tracing::debug!(execution_id, %error, "the events of a decision do not fit its run");
                let run = entries.remove(execution_id);
                drop(entries);
                drop(run);
            }
        }
    }

    /// Takes a run out to decide ahead, if it is up to date.
    pub(crate) fn lend(self: &Arc<Self>, execution_id: &str) -> Lending {
        let mut entries = self.lock();
        if let Some(ahead) = entries.ahead.get(execution_id) {
            return Lending::Awaited(ahead.line.clone());
        }
        let Some(next_event_at) = entries.by_run.get(execution_id).and_then(|(_, run)| run.next_event_at(Instant::now())) else { return Lending::Unfit };
        let Some(run) = entries.remove(execution_id) else { return Lending::Unfit };
        let stamp = entries.stamp();
        let line = Arc::new(Line::default());
        entries.ahead.insert(execution_id.to_owned(), Ahead { stamp, sent: false, line: line.clone() });
        drop(entries);
        Lending::Lent { run, next_event_at, loan: Loan { cache: self.clone(), execution_id: execution_id.to_owned(), stamp, line } }
    }
}

impl Entries {
    fn stamp(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn remove(&mut self, execution_id: &str) -> Option<Run> {
        let (stamp, run) = self.by_run.remove(execution_id)?;
        self.by_age.remove(&stamp);
        Some(run)
    }

    /// Returns the stamp and what has to be dropped.
    fn put(&mut self, execution_id: &str, run: Run, capacity: usize) -> (u64, Vec<Run>) {
        let mut dropped = Vec::new();
        let stamp = self.stamp();
        self.ahead.remove(execution_id); // void: the run has been worked on meanwhile
        match self.by_run.remove(execution_id) {
            Some((old, there)) if there.next_event() > run.next_event() => {
                self.by_run.insert(execution_id.to_owned(), (old, there));
                dropped.push(run);
            }
            other => {
                if let Some((old, there)) = other {
                    self.by_age.remove(&old);
                    dropped.push(there);
                }
                self.by_age.insert(stamp, execution_id.to_owned());
                self.by_run.insert(execution_id.to_owned(), (stamp, run));
            }
        }
        while self.by_run.len() > capacity {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            dropped.extend(self.by_run.remove(&oldest).map(|(_, run)| run));
        }
        (stamp, dropped)
    }

    fn is_lent(&self, loan: &Loan) -> bool {
        self.ahead.get(&loan.execution_id).is_some_and(|ahead| ahead.stamp == loan.stamp)
    }
}

impl Loan {
    /// The decision is about to be sent. False when it is void.
    pub(crate) fn sent(&self) -> bool {
        let mut entries = self.cache.lock();
        match entries.ahead.get_mut(&self.execution_id) {
            Some(ahead) if ahead.stamp == self.stamp => {
                ahead.sent = true;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The server has taken the decision, and the run has been fed what it led to. Whoever stopped waiting for it has made another one.
    pub(crate) fn give_back(self, run: Run) {
        let mut entries = self.cache.lock();
        let dropped = if entries.is_lent(&self) { entries.put(&self.execution_id, run, self.cache.capacity).1 } else { vec![run] };
        drop(entries);
        drop(dropped);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut entries = self.cache.lock();
        if entries.is_lent(self) {
            entries.ahead.remove(&self.execution_id);
        }
        drop(entries);
        self.line.settled.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::workflow::tests::waiting_run;

    fn run() -> Run {
        Run::new(Arc::new(Registry::default()))
    }

    fn clock() -> ServerClock {
        ServerClock { showed: Timestamp::from_millis(7), heard: Instant::now() }
    }

    /// A cache with a run `a` that waits for an activity, up to date.
    fn cache() -> Arc<RunCache> {
        let cache = Arc::new(RunCache::new(2));
        let (run, events) = waiting_run();
        let stamp = cache.put("a", run);
        assert!(matches!(cache.lend("a"), Lending::Unfit), "the decision is not known to be recorded");
        cache.feed("a", stamp + 1, Vec::new(), clock());
        assert!(matches!(cache.lend("a"), Lending::Unfit), "the run of another stamp");
        cache.feed("a", stamp, events, clock());
        cache
    }

    fn lent(cache: &Arc<RunCache>) -> (Run, Loan) {
        let Lending::Lent { run, loan, .. } = cache.lend("a") else { panic!("it is up to date") };
        (run, loan)
    }

    #[tokio::test]
    async fn the_least_recently_used_run_is_dropped_and_an_eviction_spares_a_newer_state() {
        let cache = RunCache::new(2);
        let old = cache.put("a", run());
        cache.put("b", run());
        let taken = cache.take("a").await.unwrap();
        cache.put("a", taken);
        cache.put("c", run());
        assert!(cache.take("b").await.is_none());
        cache.evict("a", old);
        assert!(cache.take("a").await.is_some());
    }

    #[tokio::test]
    async fn who_wants_a_run_whose_decision_is_on_its_way_waits_for_the_answer() {
        let cache = cache();
        let (run, loan) = lent(&cache);
        assert!(loan.sent());
        let mut taking = Box::pin(cache.take("a"));
        assert!(futures::poll!(&mut taking).is_pending());
        loan.give_back(run);
        assert!(taking.await.is_some());
    }

    #[tokio::test]
    async fn who_waits_for_a_run_that_does_not_come_back_replays() {
        let cache = cache();
        let (_refused, loan) = lent(&cache);
        assert!(loan.sent());
        let mut taking = Box::pin(cache.take("a"));
        assert!(futures::poll!(&mut taking).is_pending());
        drop(loan);
        assert!(taking.await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_waited_for_so_long_and_its_run_is_not_taken_back_then() {
        let cache = cache();
        let (run, loan) = lent(&cache);
        assert!(loan.sent());
        assert!(cache.take("a").await.is_none());
        loan.give_back(run);
        assert!(cache.take("a").await.is_none(), "whoever stopped waiting decides another way");
    }

    #[tokio::test]
    async fn a_task_that_comes_while_a_run_decides_ahead_voids_the_decision() {
        let cache = cache();
        let (_deciding, loan) = lent(&cache);
        assert!(cache.take("a").await.is_none());
        assert!(!loan.sent());
    }

    /// The line of a lent run.
    fn line(cache: &Arc<RunCache>) -> Arc<Line> {
        let Lending::Awaited(line) = cache.lend("a") else { panic!("it is lent") };
        line
    }

    #[tokio::test]
    async fn another_result_waits_until_the_run_is_back() {
        let cache = cache();
        let limit = Instant::now() + Duration::from_secs(20);
        let (run, loan) = lent(&cache);
        let line = line(&cache);
        let mut waiting = Box::pin(line.wait(limit));
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(loan.sent());
        assert!(futures::poll!(&mut waiting).is_pending());
        loan.give_back(run);
        assert!(waiting.await);
        lent(&cache);
    }

    #[tokio::test]
    async fn results_do_not_go_one_by_one_when_they_are_many_or_a_task_waits() {
        let cache = cache();
        let limit = Instant::now() + Duration::from_secs(20);
        let (run, loan) = lent(&cache);
        let lines: Vec<_> = (0..=MAX_IN_LINE).map(|_| line(&cache)).collect();
        let many = futures::future::join_all(lines.iter().map(|line| line.wait(limit)));
        let (many, ()) = tokio::join!(many, async { loan.give_back(run) });
        assert!(many.iter().all(|again| !again));

        let (run, loan) = lent(&cache);
        assert!(loan.sent());
        let line = line(&cache);
        let given_back = async { loan.give_back(run) };
        let (taken, again, ()) = tokio::join!(cache.take("a"), line.wait(limit), given_back);
        assert!(taken.is_some() && !again);
    }

    #[tokio::test]
    async fn a_run_that_was_worked_on_meanwhile_is_not_replaced_by_a_lent_one() {
        let cache = cache();
        let (ahead, loan) = lent(&cache);
        assert!(loan.sent());
        cache.put("a", run());
        loan.give_back(ahead);
        assert_eq!(cache.take("a").await.unwrap().next_event(), run().next_event());
    }
}
