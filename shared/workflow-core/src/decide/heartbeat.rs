//! A running attempt reports progress.

use super::Emitter;
use super::activity_attempt::{adopt, current_attempt};
use super::commands::check_payload;
use super::complete_workflow_task::current_task;
use crate::decision::{Reject, Reply};
use crate::input::TaskToken;
use crate::payload::Payload;
use crate::record::Control;
use harvest_ids::WorkerId;

/// Written down only when somebody can notice: there are details to keep, or a heartbeat timeout to put off.
pub(super) fn heartbeat(emitter: &mut Emitter<'_>, token: &TaskToken, worker_id: &WorkerId, details: Option<&Payload>) -> Result<Reply, Reject> {
    if token.activity_id.is_none() {
        return workflow_task(emitter, token, worker_id);
    }
    let answer = current_attempt(emitter.state, token, worker_id)?;
    if let Some(details) = details {
        check_payload(details, emitter.limits)?;
    }
    let activity = emitter.state.activity(answer.activity_id).expect("a current attempt has an open activity");
    if let Some(details) = details {
        let before = activity.heartbeat_details().map_or(0, Payload::len);
        let grown = u64::try_from(details.len().saturating_sub(before)).unwrap_or(u64::MAX);
        let (found, allowed) = (emitter.state.memory_bytes().saturating_add(grown), emitter.limits.max_state_bytes);
        if grown > 0 && found > allowed {
            return Err(Reject::Limit { limit: "max_state_bytes", found, allowed });
        }
    }
    adopt(emitter, &answer, token);
    let activity = emitter.state.activity(answer.activity_id).expect("a current attempt has an open activity");
    let cancel_requested = activity.is_cancel_requested();
    if details.is_some() || activity.spec().heartbeat_timeout.is_some() {
        let beat = Control::ActivityHeartbeat { at: emitter.at, activity_id: answer.activity_id, attempt: token.attempt, details: details.cloned() };
        emitter.control(beat);
    }
    Ok(Reply::Progress { cancel_requested })
}

/// A worker that runs local activities for longer than a workflow task may take shows that it is at it.
fn workflow_task(emitter: &mut Emitter<'_>, token: &TaskToken, worker_id: &WorkerId) -> Result<Reply, Reject> {
    current_task(emitter.state, token, worker_id)?;
    emitter.control(Control::WorkflowTaskExtended { at: emitter.at });
    Ok(Reply::Progress { cancel_requested: emitter.state.cancel_requested().is_some() })
}
