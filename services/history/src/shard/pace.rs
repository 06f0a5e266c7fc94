//! When to send a batch.
//!
//! A lone decision waits for nobody. A busy shard, however, gets the next input of many callers just after a commit has answered them: a batch
//! that is sent at once would hold the first of them only. So after a batch of several decisions the next is kept open for a moment.
//! The same work is then done in fewer commits, which costs the database less than the moment costs the callers.

use super::actor::Actor;
use super::batch::OpenBatch;
use std::time::Duration;

/// Decisions of one batch that make the shard busy.
const BUSY: usize = 2;

/// What the next batch's departure depends on.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Decisions of the newest batch.
    decisions: usize,
    /// When it came back.
    returned: Duration,
}

impl Pace {
    /// A batch is sent.
    pub(crate) fn sent(&mut self, decisions: usize) {
        self.decisions = decisions;
    }

    /// It has committed.
    pub(crate) fn returned(&mut self, now: Duration) {
        self.returned = now;
    }

    fn lingers(&self, now: Duration, longest: Duration, open: &OpenBatch) -> Option<Duration> {
        if self.decisions < BUSY || open.is_full() {
            return None;
        }
        (self.returned + longest).checked_sub(now).filter(|left| !left.is_zero())
    }
}

impl Actor {
    /// For how long the open batch is kept open yet, when there is something to write and no reason to send it at once.
    pub(crate) fn lingers(&self, now: Duration) -> Option<Duration> {
        let waits = self.in_flight.is_none() && self.open.has_writes() && !self.stopping && self.solo.is_empty();
        if waits { self.pace.lingers(now, self.deps.tuning.linger, &self.open) } else { None }
    }
}
