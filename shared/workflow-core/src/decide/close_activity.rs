//! An attempt of an activity ends.

use super::Emitter;
use super::activity_attempt::{adopt, attempt_failed, current_attempt};
use super::commands::too_large;
use crate::decision::{Reject, Reply};
use crate::event::EventKind;
use crate::input::{ActivityOutcome, TaskToken};
use crate::payload::Failure;
use crate::record::Control;
use harvest_ids::{ActivityId, WorkerId};

pub(super) fn close_activity(emitter: &mut Emitter<'_>, token: &TaskToken, worker_id: &WorkerId, outcome: &ActivityOutcome) -> Result<Reply, Reject> {
    let answer = current_attempt(emitter.state, token, worker_id)?;
    adopt(emitter, &answer, token);
    let activity_id = answer.activity_id;
    match outcome {
        ActivityOutcome::Completed(output) => match too_large("the output", output, emitter.limits) {
            // Refusing it would leave the attempt running for a result that can never come.
            Some(failure) => attempt_failed(emitter, activity_id, failure, None, None),
            None => _ = emitter.event(EventKind::ActivityCompleted { activity_id, output: output.clone() }),
        },
        ActivityOutcome::Failed { failure, retry_after } => attempt_failed(emitter, activity_id, failure.clone(), None, *retry_after),
        ActivityOutcome::Cancelled => {
            let failure = Failure::engine("Cancelled", "the attempt ended as cancelled though nobody had asked it to");
            attempt_failed(emitter, activity_id, failure, None, None);
        }
        ActivityOutcome::Released => released(emitter, activity_id, token),
    }
    Ok(Reply::Done)
}

/// A given back attempt waits again under its number, unless nobody wants it any more.
fn released(emitter: &mut Emitter<'_>, activity_id: ActivityId, token: &TaskToken) {
    if emitter.state.activity(activity_id).is_some_and(|activity| activity.is_cancel_requested()) {
        emitter.event(EventKind::ActivityCancelled { activity_id });
    } else {
        emitter.control(Control::ActivityAttemptReleased { at: emitter.at, activity_id, attempt: token.attempt });
    }
}
