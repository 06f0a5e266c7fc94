//! The runs in memory, and which run holds a business key.

use super::operation::BusinessKey;
use super::run::Run;
use harvest_ids::ExecutionId;
use harvest_workflow_core::state::Status;
use std::collections::{BTreeMap, HashMap};

/// Most runs dropped at once: what is left is dropped soon after.
const EVICTED_AT_ONCE: usize = 1_000;

/// Runs in memory, bounded in number; a run with unsaved or uncommitted changes is never evicted.
#[derive(Debug)]
pub(crate) struct Cache {
    runs: HashMap<ExecutionId, Run>,
    /// Least recently used first.
    order: BTreeMap<u64, ExecutionId>,
    keys: HashMap<BusinessKey, ExecutionId>,
    clock: u64,
    capacity: usize,
}

impl Cache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { runs: HashMap::new(), order: BTreeMap::new(), keys: HashMap::new(), clock: 0, capacity }
    }

    /// A run, marked as used.
    pub(crate) fn get(&mut self, id: ExecutionId) -> Option<&mut Run> {
        let run = self.runs.get_mut(&id)?;
        self.clock += 1;
        self.order.remove(&run.used);
        run.used = self.clock;
        self.order.insert(run.used, id);
        Some(run)
    }

    pub(crate) fn peek(&self, id: ExecutionId) -> Option<&Run> {
        self.runs.get(&id)
    }

    pub(crate) fn peek_mut(&mut self, id: ExecutionId) -> Option<&mut Run> {
        self.runs.get_mut(&id)
    }

    pub(crate) fn contains(&self, id: ExecutionId) -> bool {
        self.runs.contains_key(&id)
    }

    /// Adds a run. Its business key points to it when it is open.
    pub(crate) fn insert(&mut self, mut run: Run) {
        self.clock += 1;
        run.used = self.clock;
        self.order.insert(run.used, run.execution_id);
        // A closed run that was loaded by id need not be the newest of its key: only `point` says that.
        if run.state.status() == Status::Running {
            self.keys.insert(run.key.clone(), run.execution_id);
        }
        self.runs.insert(run.execution_id, run);
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
            self.order.remove(&run.used);
            if self.keys.get(&run.key) == Some(&id) {
                self.keys.remove(&run.key);
            }
        }
    }

    /// Drops least recently used runs beyond the capacity, sparing those that `pinned` names. Looks at a bounded number.
    pub(crate) fn evict(&mut self, pinned: impl Fn(&Run) -> bool) {
        let excess = self.runs.len().saturating_sub(self.capacity);
        if excess == 0 {
            return;
        }
        let candidates: Vec<ExecutionId> = self.order.values().take(excess.min(EVICTED_AT_ONCE) + 64).copied().collect();
        for id in candidates.into_iter().filter(|id| self.runs.get(id).is_some_and(|run| !pinned(run))).take(excess).collect::<Vec<_>>() {
            self.forget(id);
        }
    }

    /// Whether pinned runs keep more in memory than there is room for.
    pub(crate) fn is_over_capacity(&self) -> bool {
        self.runs.len() > self.capacity
    }

    /// All runs, least recently used first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.order.values().filter_map(|id| self.runs.get(id))
    }
}
