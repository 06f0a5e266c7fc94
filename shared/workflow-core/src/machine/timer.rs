//! Open durable timers. A timer that fired or was cancelled is no longer here: the run remembers only its name.

use harvest_ids::{TimerName, Timestamp};

/// A timer that may still fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// The author's label.
    pub name: TimerName,
    /// When it fires: the time of its start event plus its duration.
    pub deadline: Timestamp,
}
