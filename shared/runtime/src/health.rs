//! Whether the process is ready for traffic.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// The readiness of the parts of a process. A process with no part, or with one that is not ready, is not ready.
#[derive(Debug, Clone)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, bool>>>,
    whole: watch::Sender<bool>,
}

impl Default for Health {
    fn default() -> Self {
        Self { parts: Arc::default(), whole: watch::channel(false).0 }
    }
}

impl Health {
    /// No parts yet: not ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part or changes whether it is ready.
    pub fn set(&self, part: &'static str, ready: bool) {
        let mut parts = self.parts.lock().expect("no code panics while it holds this lock");
        parts.insert(part, ready);
        // Under the lock, so that the last change has the last word.
        self.whole.send_replace(parts.values().all(|ready| *ready));
    }

    /// A receiver that sees whether the process is ready, whenever a part is set.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.whole.subscribe()
    }

    /// The parts that are not ready, by name; `None` when no part has been added yet.
    pub fn waiting_for(&self) -> Option<Vec<&'static str>> {
        let parts = self.parts.lock().expect("no code panics while it holds this lock");
        if parts.is_empty() {
            return None;
        }
        Some(parts.iter().filter(|(_, ready)| !**ready).map(|(part, _)| *part).collect())
    }

    /// Whether every part is ready, and there is one.
    pub fn ready(&self) -> bool {
        self.waiting_for().is_some_and(|parts| parts.is_empty())
    }
}
