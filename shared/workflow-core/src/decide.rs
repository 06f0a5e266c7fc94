//! What a run does next: one input in, one decision out.
//!
//! Every file below handles the input of its name. Each checks first and emits after: the first emission is the point of no return,
//! so an input that is refused leaves the state as it was. Emitting applies at once ([`crate::state::State::apply`]).

mod activity_attempt;
mod activity_lost;
mod announce_activity;
mod close;
mod close_activity;
mod commands;
mod complete_workflow_task;
mod emitter;
mod fail_workflow_task;
mod heartbeat;
mod message;
mod pause;
mod request_cancel;
mod signal;
mod start;
mod start_activity;
mod start_workflow_task;
mod terminate;
mod wake;

use crate::decision::{Decision, Reject, Reply};
use crate::input::{Env, Input};
use crate::message::MessageBody;
use crate::state::State;
use emitter::Emitter;
use harvest_ids::RequestId;

/// Decides one input. On success the decision's records are already applied to `state`.
///
/// Times of records are `env.now`, or the time of the newest record when the clock went backwards.
///
/// # Errors
/// [`Reject`] says why the input was refused; `state` is unchanged then.
pub fn decide(state: &mut State, input: &Input, env: &Env<'_>) -> Result<Decision, Reject> {
    let mut emitter = Emitter::new(state, env);
    let reply = if !emitter.state.exists() {
        decide_new(&mut emitter, input)
    } else if emitter.state.is_open() {
        decide_open(&mut emitter, input)
    } else {
        decide_closed(&mut emitter, input)
    };
    match reply {
        Ok(reply) => Ok(emitter.decision(reply)),
        Err(reject) => {
            debug_assert!(emitter.is_untouched(), "a refused input must not have emitted anything");
            Err(reject)
        }
    }
}

fn decide_new(emitter: &mut Emitter<'_>, input: &Input) -> Result<Reply, Reject> {
    match input {
        Input::Start { started, carried } => start::start(emitter, started, carried),
        Input::Message(message) => message::on_missing(emitter, message),
        Input::Wake | Input::ActivityLost { .. } => Ok(Reply::Duplicate),
        Input::Signal { .. }
        | Input::RequestCancel { .. }
        | Input::Terminate { .. }
        | Input::Pause { .. }
        | Input::Resume { .. }
        | Input::StartWorkflowTask { .. }
        | Input::CompleteWorkflowTask(_)
        | Input::FailWorkflowTask { .. }
        | Input::StartActivity { .. }
        | Input::CloseActivity { .. }
        | Input::Heartbeat { .. }
        | Input::AnnounceActivity { .. } => Err(Reject::NotFound),
    }
}

fn decide_open(emitter: &mut Emitter<'_>, input: &Input) -> Result<Reply, Reject> {
    match input {
        Input::Start { started, .. } => start::again(emitter.state, started),
        Input::Signal { name, payload, request_id } => signal::signal(emitter, name, payload, request_id.as_ref()),
        Input::RequestCancel { reason, request_id } => Ok(request_cancel::request_cancel(emitter, reason, request_id.as_ref())),
        Input::Terminate { reason, request_id } => Ok(terminate::terminate(emitter, reason, request_id.as_ref())),
        Input::Pause { longest, reason, request_id } => pause::pause(emitter, *longest, reason, request_id.as_ref()),
        Input::Resume { request_id } => Ok(pause::resume(emitter, request_id.as_ref())),
        Input::StartWorkflowTask { dispatch } => start_workflow_task::start_workflow_task(emitter, dispatch),
        Input::CompleteWorkflowTask(task) => complete_workflow_task::complete_workflow_task(emitter, task),
        Input::FailWorkflowTask { token, worker_id, cause } => fail_workflow_task::fail_workflow_task(emitter, token, worker_id, cause),
        Input::StartActivity { activity_id, dispatch } => start_activity::start_activity(emitter, *activity_id, dispatch),
        Input::CloseActivity { token, worker_id, outcome } => close_activity::close_activity(emitter, token, worker_id, outcome),
        Input::Heartbeat { token, worker_id, details } => heartbeat::heartbeat(emitter, token, worker_id, details.as_ref()),
        Input::AnnounceActivity { token, worker_id } => announce_activity::announce_activity(emitter, token, worker_id),
        Input::ActivityLost { activity_id, attempt } => Ok(activity_lost::activity_lost(emitter, *activity_id, *attempt)),
        Input::Wake => Ok(wake::wake(emitter)),
        Input::Message(message) => Ok(message::on_open(emitter, message)),
    }
}

/// A closed run changes no more: what was answered before is answered again, everything else is told how it ended.
fn decide_closed(emitter: &mut Emitter<'_>, input: &Input) -> Result<Reply, Reject> {
    let seen = |state: &State, request_id: &Option<RequestId>| request_id.as_ref().is_some_and(|id| state.request_seen(id));
    match input {
        Input::Start { started, .. } => start::again(emitter.state, started),
        Input::Signal { request_id, .. }
        | Input::RequestCancel { request_id, .. }
        | Input::Terminate { request_id, .. }
        | Input::Pause { request_id, .. }
        | Input::Resume { request_id }
            if seen(emitter.state, request_id) =>
        {
            Ok(Reply::Duplicate)
        }
        Input::Wake | Input::ActivityLost { .. } => Ok(Reply::Duplicate),
        Input::Message(message) => {
            // Asking a child to cancel follows its chain; whatever else arrives late has nobody left to care.
            if let (MessageBody::CancelChild { reason }, Some(successor)) = (&message.body, emitter.state.continued_as()) {
                emitter.message(successor, MessageBody::CancelChild { reason: reason.clone() });
            }
            Ok(Reply::Duplicate)
        }
        Input::Signal { .. }
        | Input::RequestCancel { .. }
        | Input::Terminate { .. }
        | Input::Pause { .. }
        | Input::Resume { .. }
        | Input::StartWorkflowTask { .. }
        | Input::CompleteWorkflowTask(_)
        | Input::FailWorkflowTask { .. }
        | Input::StartActivity { .. }
        | Input::CloseActivity { .. }
        | Input::Heartbeat { .. }
        | Input::AnnounceActivity { .. } => Err(Reject::Closed { status: emitter.state.status(), continued_as: emitter.state.continued_as() }),
    }
}
