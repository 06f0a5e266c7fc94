//! What all answers of a running attempt share: whether they are current, and what a failure leads to.

use super::Emitter;
use super::commands::bounded_failure;
use crate::decision::Reject;
use crate::event::{ActivityTimeout, EventKind};
use crate::input::TaskToken;
use crate::machine::activity::ActivityPhase;
use crate::payload::Failure;
use crate::record::Control;
use crate::state::State;
use harvest_ids::{ActivityId, DurationMs, WorkerId};

/// The longest delay that a failing attempt may ask for itself: 15 minutes.
pub const RETRY_AFTER_CEILING: DurationMs = DurationMs::from_millis_const(15 * 60 * 1000);

/// An answer that is current.
pub(super) struct Answer {
    /// The activity it is about.
    pub(super) activity_id: ActivityId,
    /// The start of its dispatch was lost with the previous owner and has to be recorded first.
    adopt: bool,
}

/// Checks that an answer comes from the current dispatch, or from one that can be adopted: its attempt waits again, because the record of
/// its start was lost, and nobody else was given it since.
pub(super) fn current_attempt(state: &State, token: &TaskToken, worker_id: &WorkerId) -> Result<Answer, Reject> {
    let stale = |reason| Err(Reject::StaleTask { reason });
    if state.started().is_none_or(|started| started.execution_id != token.execution_id) {
        return stale("the token is of another run");
    }
    let Some(activity_id) = token.activity_id else { return stale("the token is of a workflow task") };
    if token.dispatch.worker_id != *worker_id {
        return stale("another worker session got this task");
    }
    let Some(activity) = state.activity(activity_id) else { return stale("the activity has ended") };
    if activity.attempt() != token.attempt {
        return stale("another attempt is current");
    }
    match activity.phase() {
        ActivityPhase::Running { dispatch, .. } if *dispatch == token.dispatch => Ok(Answer { activity_id, adopt: false }),
        ActivityPhase::Running { .. } => stale("the attempt was dispatched again"),
        ActivityPhase::Ready { given_back: Some(given_back), .. } if (token.dispatch.epoch, token.dispatch.sequence) <= *given_back => {
            stale("the attempt was given back")
        }
        ActivityPhase::Ready { .. } => Ok(Answer { activity_id, adopt: true }),
        ActivityPhase::Backoff { .. } => stale("the attempt has ended"),
    }
}

/// Makes the state ready for the answer: records the start of an adopted dispatch.
pub(super) fn adopt(emitter: &mut Emitter<'_>, answer: &Answer, token: &TaskToken) {
    if answer.adopt {
        let started =
            Control::ActivityAttemptStarted { at: emitter.at, activity_id: answer.activity_id, attempt: token.attempt, dispatch: token.dispatch.clone() };
        emitter.control(started);
    }
}

/// Ends the current attempt of an open activity with a failure: a cancelled activity is over, another is retried by its policy, and what
/// cannot be retried appends the final event. `timeout` says that the failure is a timeout; `retry_after` overrides the policy's delay.
pub(super) fn attempt_failed(
    emitter: &mut Emitter<'_>,
    activity_id: ActivityId,
    failure: Failure,
    timeout: Option<ActivityTimeout>,
    retry_after: Option<DurationMs>,
) {
    let random = emitter.random();
    let Some(activity) = emitter.state.activity(activity_id) else { return };
    if activity.is_cancel_requested() {
        emitter.event(EventKind::ActivityCancelled { activity_id });
        return;
    }
    let attempt = activity.attempt();
    let failure = bounded_failure(failure, emitter.limits);
    let policy = &activity.spec().retry;
    let final_by_kind = match timeout {
        Some(ActivityTimeout::ScheduleToStart | ActivityTimeout::ScheduleToClose) => true,
        Some(ActivityTimeout::StartToClose | ActivityTimeout::Heartbeat) | None => false,
    };
    let listed = failure.error_type != "Error" && policy.non_retryable_errors.contains(&failure.error_type);
    let delay = if final_by_kind || failure.non_retryable || listed { None } else { policy.next_delay(attempt, activity.last_delay, random) };
    let retry_at = delay.map(|delay| emitter.at.plus_millis(retry_after.map_or(delay, |asked| asked.min(RETRY_AFTER_CEILING).as_millis())));
    let stood_still = emitter.state.pause().map_or(0, |pause| pause.stood_still(activity.scheduled_at(), emitter.at));
    let closes_at = activity.closes_at().map(|at| at.plus_millis(stood_still));
    let too_late = closes_at.is_some_and(|close| retry_at.is_some_and(|retry| retry >= close));
    match (retry_at, timeout) {
        // No time is left for it: workflow code sees the budget as the reason, not an attempt.
        (Some(_), _) if too_late => {
            emitter.event(EventKind::ActivityTimedOut { activity_id, attempt, timeout: ActivityTimeout::ScheduleToClose });
        }
        (Some(retry_at), _) => {
            // Kept for the next attempt to look at, and in no history: like details of heartbeats they must not make a run too large for memory.
            let heavy = emitter.state.memory_bytes() > emitter.limits.max_state_bytes;
            let failure = if heavy { Failure { details: None, ..failure } } else { failure };
            emitter.control(Control::ActivityAttemptFailed { at: emitter.at, activity_id, attempt, failure, retry_at });
        }
        (None, Some(timeout)) => {
            emitter.event(EventKind::ActivityTimedOut { activity_id, attempt, timeout });
        }
        (None, None) => {
            emitter.event(EventKind::ActivityFailed { activity_id, attempt, failure });
        }
    }
}
