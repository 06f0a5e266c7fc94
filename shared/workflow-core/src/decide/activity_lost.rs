//! The worker of a running attempt has been silent for too long.

use super::Emitter;
use super::activity_attempt::attempt_failed;
use crate::decision::Reply;
use crate::machine::activity::ActivityPhase;
use crate::payload::Failure;
use harvest_ids::{ActivityId, Attempt};

/// Changes nothing unless exactly that attempt is still running.
pub(super) fn activity_lost(emitter: &mut Emitter<'_>, activity_id: ActivityId, lost: Attempt) -> Reply {
    let running = emitter.state.activity(activity_id).is_some_and(|activity| match activity.phase() {
        ActivityPhase::Running { attempt, .. } => *attempt == lost,
        ActivityPhase::Ready { .. } | ActivityPhase::Backoff { .. } => false,
    });
    if !running {
        return Reply::Duplicate;
    }
    let failure = Failure::engine("WorkerLost", "the worker stopped announcing that it runs this attempt");
    attempt_failed(emitter, activity_id, failure, None, None);
    Reply::Done
}
