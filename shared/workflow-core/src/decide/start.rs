//! A run begins.

use super::Emitter;
use super::commands::check_payload;
use crate::decision::{Reject, Reply};
use crate::event::{EventKind, WorkflowStarted};
use crate::input::Carried;
use crate::record::Control;
use crate::state::State;

/// Starts a run that does not exist: its first event, then what a predecessor handed over, in order.
pub(super) fn start(emitter: &mut Emitter<'_>, started: &WorkflowStarted, carried: &Carried) -> Result<Reply, Reject> {
    if started.continued_from.is_none() && started.parent.is_none() {
        check_payload(&started.input, emitter.limits)?; // a successor's and a child's were checked as commands, and are accepted already
    }
    let mut started = started.clone();
    started.config_version = emitter.config_version;
    if started.parent.is_some() && started.continued_from.is_none() {
        let declared = emitter.types.workflows.get(&started.workflow_type).cloned().unwrap_or_default();
        started.execution_timeout = started.execution_timeout.or(declared.execution_timeout);
        started.sla = started.sla.or(declared.sla);
    }
    if let (Some(asked), Some(most)) = (started.execution_timeout, emitter.limits.max_workflow_execution_timeout) {
        started.execution_timeout = Some(asked.min(most));
    }
    if started.continued_from.is_none() && started.parent.is_none() {
        // The ceiling is the default too: no chain outlives it, also none that declares nothing. A child is no chain of its own, and a
        // successor goes on under its chain's deadline.
        let ceiling = emitter.limits.max_workflow_chain_timeout;
        started.chain_execution_timeout = started.chain_execution_timeout.into_iter().chain(ceiling).min();
        started.chain_deadline = started.chain_execution_timeout.map(|span| emitter.at.plus(span));
    }
    // Beyond the hard limit the soft one could never be noticed.
    started.sla = started.sla.map(|sla| started.execution_timeout.map_or(sla, |most| sla.min(most)));
    emitter.event(EventKind::WorkflowStarted(Box::new(started)));
    for (request_id, at) in &carried.request_ids {
        emitter.control(Control::RequestSeen { at: *at, request_id: request_id.clone() });
    }
    for signal in &carried.signals {
        emitter.event(EventKind::SignalReceived { name: signal.name.clone(), payload: signal.payload.clone(), request_id: signal.request_id.clone() });
    }
    if let Some(reason) = &carried.cancel_requested {
        emitter.event(EventKind::WorkflowCancelRequested { reason: reason.clone() });
    }
    if let Some(pause) = &carried.paused {
        emitter.control(Control::Paused { at: emitter.at, until: pause.until, reason: pause.reason.clone() });
    }
    emitter.trim_requests();
    Ok(Reply::Done)
}

/// A start of a run that exists repeats the one that made it, or is refused.
pub(super) fn again(state: &State, started: &WorkflowStarted) -> Result<Reply, Reject> {
    let mine = state.started().ok_or(Reject::NotFound)?;
    let same_request = started.request_id.as_ref().is_some_and(|id| state.started_by(id));
    let same_parent = mine.parent.as_ref().is_some_and(|parent| started.parent.as_ref() == Some(parent));
    let same_predecessor = mine.continued_from.is_some() && mine.continued_from == started.continued_from;
    if same_request || same_parent || same_predecessor { Ok(Reply::Duplicate) } else { Err(Reject::AlreadyStarted) }
}
