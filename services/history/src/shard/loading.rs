//! Reading runs from the store: a bounded number at a time, and only as long as memory has room for them.

use super::actor::{Actor, Happening};
use super::batch::respond;
use super::operation::Refusal;
use super::run::Run;
use super::{Envelope, refusal_of};
use harvest_ids::ExecutionId;
use harvest_persistence::error::StoreError;
use harvest_persistence::store::StoredRun;
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
    /// Loads a run unless that is under way. Returns the operations that wait for it.
    pub(crate) fn load(&mut self, id: ExecutionId) -> &mut Vec<Envelope> {
        if !self.loading.contains_key(&id) {
            self.loads.want(id);
        }
        self.loading.entry(id).or_default()
    }

    pub(crate) fn loaded(&mut self, id: ExecutionId, stored: Result<Option<Box<StoredRun>>, StoreError>) {
        self.loads.ended();
        let parked = self.loading.remove(&id).unwrap_or_default();
        self.parked -= parked.len();
        let run = match stored {
            Ok(Some(stored)) => Run::load(*stored).map(Some).map_err(|error| Refusal::Corrupt(error.to_string())),
            Ok(None) => Ok(None),
            Err(error) => Err(refusal_of(&error)),
        };
        match run {
            Ok(Some(mut run)) => {
                if !self.cache.contains(id) {
                    run.awaited = !parked.is_empty();
                    self.cache.insert(run);
                }
                self.restart_tasks(id);
                self.watch_attempts(id);
                self.resumed.extend(parked.into_iter().map(|envelope| (id, envelope)));
            }
            // It may have been started while the store was being read.
            Ok(None) if self.cache.contains(id) => self.resumed.extend(parked.into_iter().map(|envelope| (id, envelope))),
            Ok(None) => {
                self.undone.remove(&id); // it was never committed
                parked.into_iter().for_each(|envelope| self.without_run(envelope));
            }
            Err(refusal) => parked.into_iter().for_each(|envelope| respond(envelope.responder, Err(refusal.clone()))),
        }
    }

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
