//! A pause that is not over.

use harvest_ids::Timestamp;

/// A pause that is not over: no task of the run is handed out, and its clocks but the chain's stand still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself.
    pub until: Timestamp,
    /// Why, for people.
    pub reason: String,
}

impl Pause {
    /// For how many milliseconds something that began at `began` has stood still by `now`.
    pub fn stood_still(&self, began: Timestamp, now: Timestamp) -> u64 {
        u64::try_from(now.as_millis().saturating_sub(self.since.max(began).as_millis())).unwrap_or(0)
    }
}
