//! What a state weighs in memory: an estimate that is kept with every change, for those who keep many runs and must bound them.

use super::State;
use crate::machine::activity::Activity;
use crate::machine::signal::UnreadSignal;
use crate::machine::timer::Timer;
use crate::measure::{failure_bytes, outcome_bytes, payload_bytes, started_bytes};
use harvest_ids::TimerName;

/// A state with nothing in it.
const BASE: usize = 1_024;
/// An activity besides its texts and payloads.
const ACTIVITY: usize = 512;
/// An unread signal besides its texts and payload.
const SIGNAL: usize = 192;
/// A timer besides its name, open or ended.
const TIMER: usize = 96;
/// A child.
const CHILD: usize = 96;
/// What remains of an activity that has ended.
const ENDED_ACTIVITY: usize = 32;
/// A remembered request id besides its text.
const REQUEST: usize = 160;

pub(super) fn activity(activity: &Activity) -> usize {
    let spec = &activity.spec;
    let texts = spec.activity_type.as_str().len() + spec.task_queue.as_str().len() + spec.retry.non_retryable_errors.iter().map(String::len).sum::<usize>();
    let kept = activity.heartbeat_details.as_ref().map_or(0, payload_bytes) + activity.last_failure.as_ref().map_or(0, failure_bytes);
    ACTIVITY + texts + payload_bytes(&spec.input) + kept
}

pub(super) fn signal(signal: &UnreadSignal) -> usize {
    SIGNAL + signal.name.as_str().len() + payload_bytes(&signal.payload) + signal.request_id.as_ref().map_or(0, |id| id.as_str().len())
}

pub(super) fn timer(name: &TimerName) -> usize {
    TIMER + name.as_str().len()
}

impl State {
    /// Bytes of memory that the state takes, roughly; kept with every change, so that asking costs nothing. It counts what users can make
    /// large: payloads, texts and the number of things.
    pub fn memory_bytes(&self) -> u64 {
        self.fixed_bytes(self.item_bytes, self.requests.text_bytes())
    }

    /// The same, counted anew from everything that is there: what a test compares [`State::memory_bytes`] with.
    pub fn recounted_memory_bytes(&self) -> u64 {
        let activities = self.activities.values().map(activity).sum::<usize>();
        let timers = self.timers.values().map(|Timer { name, .. }| name).chain(self.ended_timers.values()).map(timer).sum::<usize>();
        let signals = self.signals.values().map(signal).sum::<usize>();
        self.fixed_bytes(activities + timers + signals, self.requests.iter().map(|(id, _)| id.as_str().len()).sum())
    }

    /// What a few fields and the lengths of collections say.
    fn fixed_bytes(&self, items: usize, request_texts: usize) -> u64 {
        let started = self.started.as_deref().map_or(0, started_bytes);
        let closed = self.closed.as_deref().map_or(0, |closed| outcome_bytes(&closed.outcome));
        let cancel = self.cancel.as_ref().map_or(0, |cancel| cancel.reason.len());
        let block = self.deciding.block.as_ref().map_or(0, |block| block.expected.len() + block.actual.len() + block.message.len());
        let pause = self.pause.as_ref().map_or(0, |pause| pause.reason.len());
        let counted = CHILD * self.children.len() + ENDED_ACTIVITY * self.ended_activities.len() + REQUEST * self.requests.len();
        u64::try_from(BASE + started + closed + cancel + block + pause + counted + items + request_texts).unwrap_or(u64::MAX)
    }
}
