//! Attempts of activities that this worker is running.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One running attempt.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// The server wants it to stop.
    pub(crate) cancel: CancellationToken,
    /// It is not this worker's any more, or nobody has confirmed that for too long.
    pub(crate) lost: CancellationToken,
    /// The worker is shutting down and waits no longer.
    pub(crate) abort: CancellationToken,
    /// A heartbeat was sent that the server records.
    beaten: Arc<AtomicBool>,
    started: Instant,
}

impl Attempt {
    fn new() -> Self {
        let token = CancellationToken::new;
        Self { cancel: token(), lost: token(), abort: token(), beaten: Arc::default(), started: Instant::now() }
    }

    /// Notes that a heartbeat is sent that the server records.
    pub(crate) fn beat(&self) {
        self.beaten.store(true, Ordering::Release);
    }

    /// Whether one was sent: how late it was recorded is not known here.
    pub(crate) fn has_beaten(&self) -> bool {
        self.beaten.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
struct State {
    running: HashMap<Bytes, Attempt>,
    /// The newest answer to an announcement.
    confirmed: Option<Instant>,
    /// How long attempts may go on without one.
    patience: Duration,
}

/// All running attempts.
#[derive(Debug)]
pub(crate) struct Attempts {
    state: Mutex<State>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { state: Mutex::new(State { running: HashMap::new(), confirmed: None, patience: Duration::from_secs(8) }) }
    }
}

/// Takes its attempt out of the list when dropped.
pub(crate) struct Running {
    attempts: Arc<crate::worker::WorkerShared>,
    token: Bytes,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.attempts.attempts.lock().running.remove(&self.token);
    }
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt begins. `None` when it is running already: the server has sent it twice.
    pub(crate) fn begin(worker: &Arc<crate::worker::WorkerShared>, token: &Bytes) -> Option<(Attempt, Running)> {
        let attempt = Attempt::new();
        let mut state = worker.attempts.lock();
        if state.running.contains_key(token) {
            return None;
        }
        state.running.insert(token.clone(), attempt.clone());
        Some((attempt, Running { attempts: worker.clone(), token: token.clone() }))
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().running.len()
    }

    /// The tokens to announce.
    pub(crate) fn tokens(&self) -> Vec<Bytes> {
        self.lock().running.keys().cloned().collect()
    }

    /// How long attempts go on unconfirmed, as the server says.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.lock().patience = patience;
    }

    /// How long attempts go on unconfirmed.
    pub(crate) fn patience(&self) -> Duration {
        self.lock().patience
    }

    /// The server answered an announcement.
    pub(crate) fn confirmed(&self, cancel_requested: &[Bytes], lost: &[Bytes]) {
        let mut state = self.lock();
        state.confirmed = Some(Instant::now());
        for token in cancel_requested {
            if let Some(attempt) = state.running.get(token) {
                attempt.cancel.cancel();
            }
        }
        for token in lost {
            if let Some(attempt) = state.running.get(token) {
                attempt.lost.cancel();
            }
        }
    }

    /// Aborts attempts that nobody has confirmed for too long: the server will have given them to somebody else.
    pub(crate) fn abort_unconfirmed(&self) {
        let state = self.lock();
        let now = Instant::now();
        for attempt in state.running.values() {
            let since = state.confirmed.map_or(attempt.started, |confirmed| confirmed.max(attempt.started));
            if now.duration_since(since) > state.patience && !attempt.lost.is_cancelled() {
                tracing::warn!("an attempt is aborted: announcements have not been answered for {:?}", now.duration_since(since));
                attempt.lost.cancel();
            }
        }
    }

    /// Aborts all: the worker is shutting down.
    pub(crate) fn abort_all(&self) {
        for attempt in self.lock().running.values() {
            attempt.abort.cancel();
        }
    }
}
