//! A signal arrives.

use super::Emitter;
use crate::decision::{Reject, Reply};
use crate::event::EventKind;
use crate::limits::Limits;
use crate::measure::event_bytes;
use crate::payload::Payload;
use harvest_ids::{RequestId, SignalName};

pub(super) fn signal(emitter: &mut Emitter<'_>, name: &SignalName, payload: &Payload, request_id: Option<&RequestId>) -> Result<Reply, Reject> {
    if request_id.is_some_and(|id| emitter.state.request_seen(id)) {
        return Ok(Reply::Duplicate);
    }
    let (state, limits) = (&*emitter.state, emitter.limits);
    at_most("max_signal_bytes", payload.len(), limits.max_signal_bytes)?;
    at_most("max_unread_signals", state.signals.len().saturating_add(1), limits.max_unread_signals)?;
    let kind = EventKind::SignalReceived { name: name.clone(), payload: payload.clone(), request_id: request_id.cloned() };
    let events = state.last_event_id().0.saturating_add(1);
    if events > limits.max_history_events.saturating_sub(headroom(limits)) {
        return Err(Reject::Limit { limit: "max_history_events", found: events, allowed: limits.max_history_events.saturating_sub(headroom(limits)) });
    }
    let bytes = state.history_bytes().saturating_add(event_bytes(&kind));
    if bytes > limits.max_history_bytes {
        return Err(Reject::Limit { limit: "max_history_bytes", found: bytes, allowed: limits.max_history_bytes });
    }
    emitter.event(kind);
    emitter.trim_requests();
    Ok(Reply::Done)
}

/// Events that signals may not use up, so that a run at its cap can still decide to end: 100, less where the cap itself is small.
fn headroom(limits: &Limits) -> u64 {
    (limits.max_history_events / 10).min(100)
}

/// Refuses more than `allowed` of what `limit` names.
pub(super) fn at_most(limit: &'static str, found: usize, allowed: usize) -> Result<(), Reject> {
    if found <= allowed {
        return Ok(());
    }
    Err(Reject::Limit { limit, found: u64::try_from(found).unwrap_or(u64::MAX), allowed: u64::try_from(allowed).unwrap_or(u64::MAX) })
}
