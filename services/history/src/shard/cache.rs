//! The runs in memory, and which run holds a business key.

use super::memory::{Memory, Share};
use super::operation::BusinessKey;
use super::run::Run;
use harvest_ids::ExecutionId;
use harvest_workflow_core::state::Status;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Most runs looked at in one go: what is left is dropped soon after.
const LOOKED_AT: usize = 1_000;
/// Most business keys whose run is not in memory: those of runs that are being loaded, or could not be.
const KEYS_WITHOUT_RUN: usize = 10_000;

/// Runs in memory, bounded in number and in bytes; a run with unsaved or uncommitted changes must not be evicted, nor one
/// that was loaded for somebody who has not had it yet.
#[derive(Debug)]
pub(crate) struct Cache {
    runs: HashMap<ExecutionId, Run>,
    /// Least recently used first.
    order: BTreeMap<u64, ExecutionId>,
    keys: HashMap<BusinessKey, ExecutionId>,
    clock: u64,
    capacity: usize,
    /// What all runs take.
    share: Share,
}

impl Cache {
    pub(crate) fn new(capacity: usize, memory: Arc<Memory>) -> Self {
        Self { runs: HashMap::new(), order: BTreeMap::new(), keys: HashMap::new(), clock: 0, capacity, share: Share::new(memory) }
    }

    /// Marks a run as used. False when it is not in memory.
    pub(crate) fn touch(&mut self, id: ExecutionId) -> bool {
        let Some(run) = self.runs.get_mut(&id) else { return false };
        self.clock += 1;
        self.order.remove(&run.used);
        run.used = self.clock;
        run.awaited = false;
        self.order.insert(run.used, id);
        true
    }

    /// Changes a run, and with it what all runs weigh. `None` when it is not in memory.
    pub(crate) fn change<T>(&mut self, id: ExecutionId, change: impl FnOnce(&mut Run) -> T) -> Option<T> {
        let run = self.runs.get_mut(&id)?;
        let before = run.bytes();
        let result = change(run);
        self.share.changed(before, run.bytes());
        Some(result)
    }

    pub(crate) fn peek(&self, id: ExecutionId) -> Option<&Run> {
        self.runs.get(&id)
    }

    pub(crate) fn contains(&self, id: ExecutionId) -> bool {
        self.runs.contains_key(&id)
    }

    /// Adds a run that is not here. Its business key points to it when it is open.
    pub(crate) fn insert(&mut self, mut run: Run) {
        self.clock += 1;
        run.used = self.clock;
        self.order.insert(run.used, run.execution_id);
        // A closed run that was loaded by id need not be the newest of its key: only `point` says that.
        if run.state.status() == Status::Running {
            self.keys.insert(run.key.clone(), run.execution_id);
        }
        self.share.changed(0, run.bytes());
        if let Some(old) = self.runs.insert(run.execution_id, run) {
            self.share.changed(old.bytes(), 0);
            self.order.remove(&old.used);
        }
    }

    /// The run that answers for a business key: open, or the newest closed one.
    pub(crate) fn key(&self, key: &BusinessKey) -> Option<ExecutionId> {
        self.keys.get(key).copied()
    }

    /// Remembers what the store or a decision says about a key.
    pub(crate) fn point(&mut self, key: BusinessKey, id: ExecutionId) {
        self.keys.insert(key, id);
    }

    /// Forgets a run and what its key points to: the store is asked again.
    pub(crate) fn forget(&mut self, id: ExecutionId) {
        if let Some(run) = self.runs.remove(&id) {
            self.share.changed(run.bytes(), 0);
            self.order.remove(&run.used);
            if self.keys.get(&run.key) == Some(&id) {
                self.keys.remove(&run.key);
            }
        }
    }

    /// Drops least recently used runs while there are too many or they are too large, sparing those that `pinned` names. Looks at a bounded
    /// number.
    pub(crate) fn evict(&mut self, pinned: impl Fn(&Run) -> bool) {
        let candidates: Vec<ExecutionId> = self.order.values().take(LOOKED_AT).copied().collect();
        for id in candidates {
            if !self.is_over_capacity() {
                break;
            }
            if self.runs.get(&id).is_some_and(|run| !pinned(run)) {
                self.forget(id);
            }
        }
        if self.keys.len() > self.runs.len() + KEYS_WITHOUT_RUN {
            let runs = &self.runs;
            self.keys.retain(|_, id| runs.contains_key(id));
        }
    }

    /// Whether there is more in memory than there is room for.
    pub(crate) fn is_over_capacity(&self) -> bool {
        self.runs.len() > self.capacity || self.share.is_over()
    }

    /// Whether keys have to be forgotten.
    pub(crate) fn has_stray_keys(&self) -> bool {
        self.keys.len() > self.runs.len() + KEYS_WITHOUT_RUN
    }

    /// Bytes of all runs, by estimate.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.share.bytes()
    }

    /// Checks that what all runs weigh was kept right.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.runs.values().for_each(|run| assert_eq!(run.bytes(), run.recounted_bytes(), "run {}", run.execution_id));
        assert_eq!(self.bytes(), self.runs.values().map(Run::bytes).sum::<u64>());
        assert_eq!(self.order.len(), self.runs.len());
    }

    /// All runs, least recently used first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.order.values().filter_map(|id| self.runs.get(id))
    }
}
