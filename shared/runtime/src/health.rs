//! Whether the process is ready for traffic.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The readiness of the parts of a process. A process with no part, or with one that is not ready, is not ready.
#[derive(Debug, Clone, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, bool>>>,
}

impl Health {
    /// No parts yet: not ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part or changes whether it is ready.
    pub fn set(&self, part: &'static str, ready: bool) {
        self.parts.lock().expect("no code panics while it holds this lock").insert(part, ready);
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
