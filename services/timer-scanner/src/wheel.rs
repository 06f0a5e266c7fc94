//! The deadlines of the near future in memory: a pure data structure. Wall times are when a run is due, monotonic ones when something
//! was learned here.

#[cfg(test)]
mod tests;

use harvest_ids::{ExecutionId, ShardId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// A run of a shard.
pub(crate) type Run = (ShardId, ExecutionId);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for this time: its deadline, or the next try.
    Armed(Timestamp),
    /// Its owner is being told.
    Sending,
    /// Its owner has been told. When a scan still finds its row after this time, the owner is told again.
    Told(Timestamp),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    due: Timestamp,
    phase: Phase,
    /// How often the owner has been told.
    told: u32,
    learned: Duration,
}

/// The deadlines. A run has one at most: its earliest.
#[derive(Debug)]
pub(crate) struct Wheel {
    entries: HashMap<Run, Entry>,
    /// The armed ones by time.
    armed: BTreeSet<(Timestamp, Run)>,
    per_shard: BTreeMap<ShardId, usize>,
    capacity: usize,
}

/// Pause before the owner is told again, doubling from this; a row that stays is one that its owner cannot decide.
const TELL_AGAIN: Duration = Duration::from_secs(1);
const MAX_TELL_AGAIN: Duration = Duration::from_secs(30);

fn later(at: Timestamp, span: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
}

impl Wheel {
    /// An empty wheel for at most `capacity` deadlines; those beyond it are left to later scans.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), armed: BTreeSet::new(), per_shard: BTreeMap::new(), capacity }
    }

    /// How many deadlines there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many of a shard.
    pub(crate) fn count(&self, shard: ShardId) -> usize {
        self.per_shard.get(&shard).copied().unwrap_or(0)
    }

    /// The next time at which something is to be done.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.armed.first().map(|(at, _)| *at)
    }

    /// An owner says that a run has this deadline now.
    pub(crate) fn announce(&mut self, learned: Duration, run: Run, due: Timestamp) {
        self.put(run, Entry { due, phase: Phase::Armed(due), told: 0, learned });
    }

    /// A scan that began at `began` read these rows: all of `shards` that are due before `until`. Rows that it did not find are gone.
    pub(crate) fn scanned(&mut self, began: Duration, now: Timestamp, shards: &BTreeSet<ShardId>, until: Timestamp, rows: &[(Run, Timestamp)]) {
        for (run, due) in rows {
            let fresh = Entry { due: *due, phase: Phase::Armed(*due), told: 0, learned: began };
            match self.entries.get(run).copied() {
                None => self.put(*run, fresh),
                // Announced after the scan began: the announcement is newer.
                Some(known) if known.learned >= began => {}
                Some(known) if known.due != *due && known.phase != Phase::Sending => self.put(*run, fresh),
                Some(known) => {
                    let phase = match known.phase {
                        Phase::Told(again) if again <= now => Phase::Armed(now),
                        other => other,
                    };
                    self.put(*run, Entry { phase, ..known });
                }
            }
        }
        let seen: BTreeSet<&Run> = rows.iter().map(|(run, _)| run).collect();
        let gone = |(run, entry): &(&Run, &Entry)| {
            shards.contains(&run.0) && entry.due < until && entry.learned < began && entry.phase != Phase::Sending && !seen.contains(run)
        };
        let gone: Vec<Run> = self.entries.iter().filter(gone).map(|(run, _)| *run).collect();
        gone.iter().for_each(|run| self.remove(run));
    }

    /// Takes what is due: by shard, to be told to its owner.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> BTreeMap<ShardId, Vec<ExecutionId>> {
        let mut due: BTreeMap<ShardId, Vec<ExecutionId>> = BTreeMap::new();
        while let Some((_, run)) = self.armed.first().filter(|(at, _)| *at <= now).copied() {
            due.entry(run.0).or_default().push(run.1);
            if let Some(entry) = self.entries.get(&run).copied() {
                self.put(run, Entry { phase: Phase::Sending, ..entry });
            }
        }
        due
    }

    /// The owner has been told of these runs.
    pub(crate) fn told(&mut self, now: Timestamp, shard: ShardId, runs: &[ExecutionId]) {
        for id in runs {
            self.after_sending((shard, *id), |entry| {
                let pause = TELL_AGAIN.saturating_mul(1 << entry.told.min(10)).min(MAX_TELL_AGAIN);
                Entry { phase: Phase::Told(later(now, pause)), told: entry.told.saturating_add(1), ..entry }
            });
        }
    }

    /// The owner could not be told: again at this time.
    pub(crate) fn not_told(&mut self, again: Timestamp, shard: ShardId, runs: &[ExecutionId]) {
        for id in runs {
            self.after_sending((shard, *id), |entry| Entry { phase: Phase::Armed(again), ..entry });
        }
    }

    /// Forgets all shards but these.
    pub(crate) fn keep(&mut self, shards: &BTreeSet<ShardId>) {
        let others: Vec<Run> = self.entries.keys().filter(|(shard, _)| !shards.contains(shard)).copied().collect();
        others.iter().for_each(|run| self.remove(run));
    }

    /// Changes an entry, unless it was announced anew while it was being sent.
    fn after_sending(&mut self, run: Run, change: impl FnOnce(Entry) -> Entry) {
        if let Some(entry) = self.entries.get(&run).copied().filter(|entry| entry.phase == Phase::Sending) {
            self.put(run, change(entry));
        }
    }

    fn put(&mut self, run: Run, entry: Entry) {
        if !self.entries.contains_key(&run) && self.entries.len() >= self.capacity {
            return;
        }
        self.remove(&run);
        if let Phase::Armed(at) = entry.phase {
            self.armed.insert((at, run));
        }
        self.entries.insert(run, entry);
        *self.per_shard.entry(run.0).or_insert(0) += 1;
    }

    fn remove(&mut self, run: &Run) {
        let Some(entry) = self.entries.remove(run) else { return };
        if let Phase::Armed(at) = entry.phase {
            self.armed.remove(&(at, *run));
        }
        if let Some(count) = self.per_shard.get_mut(&run.0) {
            *count -= 1;
            if *count == 0 {
                self.per_shard.remove(&run.0);
            }
        }
    }
}
