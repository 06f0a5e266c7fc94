//! Values taken from outside, recorded so that replay sees the same, and version gates.

use crate::error::HarvestError;
use crate::payload;
use crate::workflow::context::{WorkflowContext, system_time, unix_millis};
use harvest_ids::Timestamp;
use harvest_sdk_replay::Recorded;
use harvest_workflow_core::event::SideEffectKind;
use harvest_workflow_core::payload::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::time::SystemTime;
use uuid::Uuid;

impl WorkflowContext {
    /// The recorded value, or `fresh`, recorded. When the code does not match the history the machine has failed: the value given then
    /// does not matter, nothing that the code does with it counts.
    fn recorded<T: Serialize + DeserializeOwned>(&self, kind: SideEffectKind, fresh: T) -> T {
        let mut state = self.shared.lock();
        match state.machine.side_effect(kind, None) {
            Recorded::Value(value) => payload::from_payload("side effect", &value).unwrap_or(fresh),
            Recorded::Fresh => {
                let value = payload::to_payload("side effect", &fresh).unwrap_or_else(|_| Payload::null());
                state.machine.record_side_effect(kind, None, value);
                fresh
            }
            Recorded::Diverged => fresh,
        }
    }

    /// The worker's clock, recorded: one event per call. [`WorkflowContext::now`] is free and mostly as good.
    pub fn system_now(&self) -> SystemTime {
        system_time(Timestamp::from_millis(self.recorded(SideEffectKind::Now, unix_millis(SystemTime::now()))))
    }

    /// A random UUID, recorded.
    pub fn new_uuid(&self) -> Uuid {
        let fresh = Uuid::new_v4();
        self.recorded(SideEffectKind::Uuid, fresh.to_string()).parse().unwrap_or(fresh)
    }

    /// A random number, recorded.
    pub fn random_u64(&self) -> u64 {
        self.recorded(SideEffectKind::Random, fresh_random())
    }

    /// A random number from 0 (included) to 1 (excluded), recorded.
    pub fn random_f64(&self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64; // exact: every integer up to it is a float
        (self.random_u64() >> 11) as f64 / STEPS
    }

    /// A random number of a range, recorded; the start of an empty one.
    pub fn random_range(&self, range: Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start);
        let random = self.random_u64();
        if width == 0 { range.start } else { range.start + random % width }
    }

    /// Runs a closure once per run and name, and records what it returns: later calls with the name, and replays, give that value.
    /// For small, quick outside values; I/O belongs in activities.
    ///
    /// # Errors
    /// [`HarvestError::Serialization`] when the value is not JSON or was recorded with another shape.
    pub async fn side_effect<T: Serialize + DeserializeOwned>(&self, name: &str, take: impl FnOnce() -> T) -> Result<T, HarvestError> {
        let recorded = self.shared.lock().machine.side_effect(SideEffectKind::Custom, Some(name));
        match recorded {
            Recorded::Value(value) => payload::from_payload("side effect", &value),
            Recorded::Fresh => {
                let taken = take(); // the author's code: not under the lock
                let value = payload::to_payload("side effect", &taken);
                let recorded = value.clone().unwrap_or_else(|_| Payload::null()); // so that a replay finds something here
                self.shared.lock().machine.record_side_effect(SideEffectKind::Custom, Some(name), recorded);
                value.map(|_| taken)
            }
            Recorded::Diverged => std::future::pending().await,
        }
    }

    /// Whether the run is past a change of the code: `if ctx.patched("new-tax") { new } else { old }`. Runs that passed this place before
    /// the change keep the old branch. Retire a gate with [`WorkflowContext::deprecate_patch`] once no such run is left.
    pub fn patched(&self, id: &str) -> bool {
        self.shared.lock().machine.patched(id)
    }

    /// The second step of retiring a gate: runs that have its marker replay, new ones record none. Delete it when no run has the marker.
    pub fn deprecate_patch(&self, id: &str) {
        self.shared.lock().machine.deprecate_patch(id);
    }

    /// The version of a change point with more than two versions: `max`, recorded, for code that runs live, what was recorded for a replay,
    /// `min` for runs that passed before the change.
    pub fn version(&self, id: &str, min: u32, max: u32) -> u32 {
        self.shared.lock().machine.version(id, min, max)
    }
}

/// 64 random bits: those of a version 4 UUID that are neither version nor variant.
pub(crate) fn fresh_random() -> u64 {
    let bytes = Uuid::new_v4().into_bytes();
    u64::from_be_bytes([bytes[0], bytes[1], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]])
}
