//! Reading runs from the store: a bounded number at a time, and only as long as memory has room for them.

use super::actor::{Actor, Happening};
use harvest_ids::ExecutionId;
use std::collections::VecDeque;

/// Most runs being read at a time: they come into memory whole.
const MAX_READING: usize = 32;

/// Runs that are to be read, and how many are being read.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    wanted: VecDeque<ExecutionId>,
    reading: usize,
}

impl Loads {
    /// A run is to be read. Its turn comes.
    pub(crate) fn want(&mut self, id: ExecutionId) {
        self.wanted.push_back(id);
    }

    /// A run has been read, or could not be.
    pub(crate) fn ended(&mut self) {
        self.reading = self.reading.saturating_sub(1);
    }

    /// Nobody wants those that are not being read yet.
    pub(crate) fn forget(&mut self) {
        self.wanted.clear();
    }

    fn next(&mut self, most: usize) -> Option<ExecutionId> {
        if self.reading >= most {
            return None;
        }
        let id = self.wanted.pop_front()?;
        self.reading += 1;
        Some(id)
    }
}

impl Actor {
    /// Reads runs that operations wait for. While memory is full of runs that cannot be dropped, one more is read only when nothing that
    /// has been read already could go on.
    pub(crate) fn read_runs(&mut self) {
        let most = if self.cache.is_over_capacity() { usize::from(self.resumed.is_empty()) } else { MAX_READING };
        while let Some(id) = self.loads.next(most) {
            let (store, shard_id) = (self.deps.store.clone(), self.shard_id);
            self.spawn(async move { Happening::Loaded(id, store.load_run(shard_id, id).await.map(|run| run.map(Box::new))) });
        }
    }
}
