//! Runs kept in memory between their tasks, the least recently used dropped first.

use crate::workflow::run::Run;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Entries {
    by_run: HashMap<String, (u64, Run)>,
    by_age: BTreeMap<u64, String>,
    next: u64,
}

/// The cache. A run that is being worked on is not in it.
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

    /// Takes a run out.
    pub(crate) fn take(&self, execution_id: &str) -> Option<Run> {
        let mut entries = self.lock();
        let (stamp, run) = entries.by_run.remove(execution_id)?;
        entries.by_age.remove(&stamp);
        Some(run)
    }

    /// Puts a run in, unless a newer state of it is there. Returns a stamp for [`RunCache::evict`].
    pub(crate) fn put(&self, execution_id: &str, run: Run) -> u64 {
        let mut dropped = Vec::new(); // runs are dropped outside the lock: their destructors are the author's code
        let mut entries = self.lock();
        let stamp = entries.next;
        entries.next += 1;
        match entries.by_run.remove(execution_id) {
            Some((old, there)) if there.next_event() > run.next_event() => {
                entries.by_run.insert(execution_id.to_owned(), (old, there));
                dropped.push(run);
            }
            other => {
                if let Some((old, there)) = other {
                    entries.by_age.remove(&old);
                    dropped.push(there);
                }
                entries.by_age.insert(stamp, execution_id.to_owned());
                entries.by_run.insert(execution_id.to_owned(), (stamp, run));
            }
        }
        while entries.by_run.len() > self.capacity {
            let Some((_, oldest)) = entries.by_age.pop_first() else { break };
            dropped.extend(entries.by_run.remove(&oldest).map(|(_, run)| run));
        }
        drop(entries);
        drop(dropped);
        stamp
    }

    /// Drops a run if it is still the one that was put in with `stamp`.
    pub(crate) fn evict(&self, execution_id: &str, stamp: u64) {
        let mut entries = self.lock();
        if entries.by_run.get(execution_id).is_some_and(|(there, _)| *there == stamp) {
            entries.by_age.remove(&stamp);
            let run = entries.by_run.remove(execution_id);
            drop(entries);
            drop(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use std::sync::Arc;

    fn run() -> Run {
        Run::new(Arc::new(Registry::default()))
    }

    #[test]
    fn the_least_recently_used_run_is_dropped_and_an_eviction_spares_a_newer_state() {
        let cache = RunCache::new(2);
        let old = cache.put("a", run());
        cache.put("b", run());
        let taken = cache.take("a").unwrap();
        cache.put("a", taken);
        cache.put("c", run());
        assert!(cache.take("b").is_none());
        cache.evict("a", old);
        assert!(cache.take("a").is_some());
    }
}
