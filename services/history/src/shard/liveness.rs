//! Which running attempts have been heard of, and which have been silent for too long.
//!
//! Silence counts only while this owner could have received announcements: a gap in its own clock or a fleet without frontends starts
//! all counts anew.

use harvest_ids::{ActivityId, Attempt, EventId, ExecutionId};
use std::collections::BTreeMap;
use std::time::Duration;

/// After how long without an announcement an attempt is lost.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(10);
/// How often the silent ones are looked for.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// A gap between two sweeps that shows that this process did not run.
const OWN_OUTAGE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy)]
struct Seen {
    attempt: Attempt,
    at: Duration,
}

/// Running attempts of a shard.
#[derive(Debug)]
pub(crate) struct Liveness {
    seen: BTreeMap<(ExecutionId, ActivityId), Seen>,
    last_sweep: Duration,
}

impl Liveness {
    pub(crate) fn new(now: Duration) -> Self {
        Self { seen: BTreeMap::new(), last_sweep: now }
    }

    /// The attempt was dispatched or announced just now.
    pub(crate) fn heard(&mut self, execution_id: ExecutionId, activity_id: ActivityId, attempt: Attempt, now: Duration) {
        self.seen.insert((execution_id, activity_id), Seen { attempt, at: now });
    }

    /// The attempt runs, as the store says; its worker has not been heard of yet.
    pub(crate) fn watch(&mut self, execution_id: ExecutionId, activity_id: ActivityId, attempt: Attempt, now: Duration) {
        let seen = self.seen.entry((execution_id, activity_id)).or_insert(Seen { attempt, at: now });
        if seen.attempt != attempt {
            *seen = Seen { attempt, at: now };
        }
    }

    /// The attempt has ended.
    pub(crate) fn ended(&mut self, execution_id: ExecutionId, activity_id: ActivityId) {
        self.seen.remove(&(execution_id, activity_id));
    }

    /// The run has ended, and all its attempts with it.
    pub(crate) fn run_ended(&mut self, execution_id: ExecutionId) {
        let of_run = self.seen.range((execution_id, EventId(0))..=(execution_id, EventId(u64::MAX))).map(|(key, _)| *key);
        for key in of_run.collect::<Vec<_>>() {
            self.seen.remove(&key);
        }
    }

    /// Attempts that are lost. They are reported again later unless the run says that they have ended.
    pub(crate) fn sweep(&mut self, now: Duration, could_hear: bool) -> Vec<(ExecutionId, ActivityId, Attempt)> {
        let outage = !could_hear || now.saturating_sub(self.last_sweep) > OWN_OUTAGE;
        self.last_sweep = now;
        if outage {
            for seen in self.seen.values_mut() {
                seen.at = now;
            }
            return Vec::new();
        }
        let lost: Vec<_> = self
            .seen
            .iter()
            .filter(|(_, seen)| now.saturating_sub(seen.at) >= LOST_AFTER)
            .map(|((run, activity), seen)| (*run, *activity, seen.attempt))
            .collect();
        for (run, activity, _) in &lost {
            if let Some(seen) = self.seen.get_mut(&(*run, *activity)) {
                seen.at = now;
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_ids::{Slot, Timestamp};

    #[test]
    fn silence_counts_only_while_the_owner_could_hear() {
        let run = ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(0), 7);
        let start = Duration::from_secs(100);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut liveness = Liveness::new(start);
        liveness.heard(run, EventId(3), Attempt(1), start);
        for second in 1..=9 {
            assert!(liveness.sweep(at(second), true).is_empty());
        }
        assert!(liveness.sweep(at(20), true).is_empty(), "the process itself was away");
        for second in 21..=29 {
            assert!(liveness.sweep(at(second), second != 25).is_empty());
        }
        for second in 30..=34 {
            assert!(liveness.sweep(at(second), true).is_empty(), "no frontend at second 25");
        }
        assert_eq!(liveness.sweep(at(35), true), vec![(run, EventId(3), Attempt(1))]);
        assert!(liveness.sweep(at(36), true).is_empty(), "not at every sweep");
        liveness.ended(run, EventId(3));
        for second in 37..=60 {
            assert!(liveness.sweep(at(second), true).is_empty(), "it has ended");
        }
    }
}
