//! Versioning gates: markers that remember which branch of changed code a run took.

use crate::machine::{Current, Machine};
use bytes::Bytes;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::payload::Payload;

/// Markers of `patched` gates begin with it.
pub const PATCH_PREFIX: &str = "patch:";
/// Markers of `version` gates begin with it; their details are the version as a JSON number.
pub const VERSION_PREFIX: &str = "version:";

impl Machine {
    /// Whether the code is past a two-state change: true, and recorded, for code that runs live; for a replay what was recorded.
    pub fn patched(&mut self, id: &str) -> bool {
        let name = format!("{PATCH_PREFIX}{id}");
        let version = format!("{VERSION_PREFIX}{id}");
        if self.markers.contains_key(&name) || self.markers.get(&version).is_some_and(|details| number(details.as_ref()).is_some_and(|v| v >= 2)) {
            return true;
        }
        if self.pass_marker(&name).is_some() {
            return true;
        }
        if let Some(details) = self.pass_marker(&version) {
            return number(details.as_ref()).is_some_and(|v| v >= 2);
        }
        if self.is_replaying() {
            return false;
        }
        self.record_marker(&name, None);
        true
    }

    /// The second step of retiring a gate: recorded markers pass, none is recorded any more.
    pub fn deprecate_patch(&mut self, id: &str) {
        let name = format!("{PATCH_PREFIX}{id}");
        if !self.markers.contains_key(&name) {
            self.pass_marker(&name);
        }
    }

    /// The version of a change point: what was recorded; `min` for a replay from before the gate; `max`, recorded, for code that runs live.
    pub fn version(&mut self, id: &str, min: u32, max: u32) -> u32 {
        let name = format!("{VERSION_PREFIX}{id}");
        if let Some(details) = self.markers.get(&name) {
            return number(details.as_ref()).unwrap_or(min);
        }
        if let Some(details) = self.pass_marker(&name) {
            return number(details.as_ref()).unwrap_or(min);
        }
        if self.is_replaying() {
            return min;
        }
        self.record_marker(&name, Some(Payload::json(Bytes::from(max.to_string()))));
        max
    }

    /// When the recorded decision has this marker and the code has not passed it: passes it.
    fn pass_marker(&mut self, wanted: &str) -> Option<Option<Payload>> {
        let Current::Replayed(decision) = &self.current else { return None };
        let found = decision.commands.iter().enumerate().find_map(|(index, event)| match &event.kind {
            EventKind::MarkerRecorded { name, details } if name == wanted && !self.markers_taken.contains(&index) => Some((index, details.clone())),
            _ => None,
        });
        let (index, details) = found?;
        self.markers_taken.insert(index);
        self.record_marker(wanted, details.clone());
        Some(details)
    }
}

fn number(details: Option<&Payload>) -> Option<u32> {
    std::str::from_utf8(&details?.data).ok()?.trim().parse().ok()
}
