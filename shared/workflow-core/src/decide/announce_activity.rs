//! A worker announces that it is running an attempt.

use super::Emitter;
use super::activity_attempt::{adopt, current_attempt};
use crate::decision::{Reject, Reply};
use crate::input::TaskToken;
use harvest_ids::WorkerId;

pub(super) fn announce_activity(emitter: &mut Emitter<'_>, token: &TaskToken, worker_id: &WorkerId) -> Result<Reply, Reject> {
    let answer = current_attempt(emitter.state, token, worker_id)?;
    adopt(emitter, &answer, token);
    let cancel_requested = emitter.state.activity(answer.activity_id).is_some_and(|activity| activity.is_cancel_requested());
    Ok(Reply::Progress { cancel_requested })
}
