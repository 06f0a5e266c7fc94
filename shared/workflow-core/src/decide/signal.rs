//! A signal arrives.

use super::Emitter;
use crate::decision::{Reject, Reply};
use crate::event::EventKind;
use crate::payload::Payload;
use harvest_ids::{RequestId, SignalName};

pub(super) fn signal(emitter: &mut Emitter<'_>, name: &SignalName, payload: &Payload, request_id: Option<&RequestId>) -> Result<Reply, Reject> {
    if request_id.is_some_and(|id| emitter.state.request_seen(id)) {
        return Ok(Reply::Duplicate);
    }
    let (state, limits) = (&*emitter.state, emitter.limits);
    at_most("max_signal_bytes", payload.len(), limits.max_signal_bytes)?;
    at_most("max_unread_signals", state.signals.len().saturating_add(1), limits.max_unread_signals)?;
    // The first signal past a cap is still taken: it makes the run decide, and that decision ends it. Refusing it would leave a run that
    // waits for signals waiting for ever.
    past("max_history_events", state.last_event_id().0, limits.max_history_events)?;
    past("max_history_bytes", state.history_bytes(), limits.max_history_bytes)?;
    let kind = EventKind::SignalReceived { name: name.clone(), payload: payload.clone(), request_id: request_id.cloned() };
    emitter.event(kind);
    emitter.trim_requests();
    Ok(Reply::Done)
}

fn past(limit: &'static str, found: u64, allowed: u64) -> Result<(), Reject> {
    if found <= allowed { Ok(()) } else { Err(Reject::Limit { limit, found, allowed }) }
}

/// Refuses more than `allowed` of what `limit` names.
pub(super) fn at_most(limit: &'static str, found: usize, allowed: usize) -> Result<(), Reject> {
    if found <= allowed {
        return Ok(());
    }
    Err(Reject::Limit { limit, found: u64::try_from(found).unwrap_or(u64::MAX), allowed: u64::try_from(allowed).unwrap_or(u64::MAX) })
}
