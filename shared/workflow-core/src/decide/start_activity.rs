//! A worker takes the pending attempt of an activity.

use super::Emitter;
use crate::decision::{Reject, Reply};
use crate::machine::activity::ActivityPhase;
use crate::record::{Control, Dispatch};
use harvest_ids::ActivityId;

pub(super) fn start_activity(emitter: &mut Emitter<'_>, activity_id: ActivityId, dispatch: &Dispatch) -> Result<Reply, Reject> {
    if emitter.state.pause().is_some() {
        return Err(Reject::NotPending);
    }
    let activity = emitter.state.activity(activity_id).ok_or(Reject::NotPending)?;
    let attempt = match activity.phase() {
        ActivityPhase::Ready { attempt, .. } => *attempt,
        ActivityPhase::Running { .. } | ActivityPhase::Backoff { .. } => return Err(Reject::NotPending),
    };
    let durable_first = activity.spec().retry.max_attempts == 1;
    emitter.control(Control::ActivityAttemptStarted { at: emitter.at, activity_id, attempt, dispatch: dispatch.clone() });
    Ok(Reply::ActivityTask { attempt, durable_first })
}
