//! What a run's context, futures and executor share.

use crate::error::HarvestError;
use crate::registry::Registry;
use harvest_ids::Timestamp;
use harvest_sdk_replay::{Machine, WaitKey};
use harvest_workflow_core::payload::Payload;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Answers one kind of query from the code's state.
pub(crate) type QueryHandler = Arc<dyn Fn(&Payload) -> Result<Payload, HarvestError> + Send + Sync>;

/// What a server tells with a workflow task; each may be missing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// When it gave the task out.
    pub(crate) at: Option<Timestamp>,
    /// When the execution timeout ends the run, pauses included.
    pub(crate) deadline: Option<Timestamp>,
}

/// The mutable part.
#[derive(Default)]
pub(crate) struct RunState {
    pub(crate) machine: Machine,
    /// Who waits for what.
    pub(crate) wakers: BTreeMap<WaitKey, Vec<Waker>>,
    pub(crate) queries: BTreeMap<String, QueryHandler>,
    /// What the server told with the newest workflow task.
    pub(crate) told: Told,
    /// Counts things that the SDK names for the author (children, deadlines of signals).
    pub(crate) named: u64,
}

/// One run in memory.
pub(crate) struct RunShared {
    state: Mutex<RunState>,
    pub(crate) registry: Arc<Registry>,
}

impl RunShared {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { state: Mutex::new(RunState::default()), registry }
    }

    /// Locks the state. No author's code ever runs under the lock, so a panic cannot leave it half changed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes everybody who waits for `key`; whether there was anybody.
    pub(crate) fn wake(&self, key: &WaitKey) -> bool {
        let wakers = self.lock().wakers.remove(key).unwrap_or_default();
        let any = !wakers.is_empty();
        for waker in wakers {
            waker.wake();
        }
        any
    }
}

impl RunState {
    /// Notes who to wake for `key`.
    pub(crate) fn wait(&mut self, key: WaitKey, waker: &Waker) {
        let wakers = self.wakers.entry(key).or_default();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// The next number for a name that the SDK makes.
    pub(crate) fn next_name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }
}
