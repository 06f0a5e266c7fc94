//! A run is paused and goes on. Nothing in its history shows it.

use super::Emitter;
use super::close::note_breach;
use super::commands::bounded_text;
use super::wake::look;
use crate::decision::{Reject, Reply};
use crate::record::Control;
use harvest_ids::{DurationMs, RequestId};

/// What a worker has in its hands goes on, and its answers count; nothing new is handed out. Pausing twice is pausing once.
pub(super) fn pause(emitter: &mut Emitter<'_>, longest: Option<DurationMs>, reason: &str, request_id: Option<&RequestId>) -> Result<Reply, Reject> {
    let most = emitter.limits.max_workflow_pause;
    let longest = longest.unwrap_or(most);
    if longest > most {
        return Err(Reject::Limit { limit: "max_workflow_pause", found: longest.as_millis(), allowed: most.as_millis() });
    }
    if emitter.state.pause().is_some() {
        return Ok(repeated(emitter, request_id));
    }
    note_breach(emitter); // its clock stands still from here on
    emitter.control(Control::Paused { at: emitter.at, until: emitter.at.plus(longest), reason: bounded_text(reason) });
    emitter.remember(request_id);
    Ok(Reply::Done)
}

/// Everything that fell due meanwhile and was not put off happens at once.
pub(super) fn resume(emitter: &mut Emitter<'_>, request_id: Option<&RequestId>) -> Reply {
    if emitter.state.pause().is_none() {
        return repeated(emitter, request_id);
    }
    emitter.remember(request_id);
    go_on(emitter);
    Reply::Done
}

/// Ends the pause.
pub(super) fn go_on(emitter: &mut Emitter<'_>) {
    emitter.control(Control::Resumed { at: emitter.at });
    look(emitter);
}

fn repeated(emitter: &mut Emitter<'_>, request_id: Option<&RequestId>) -> Reply {
    if request_id.is_some_and(|id| !emitter.state.request_seen(id)) {
        emitter.remember(request_id); // so that its repetition is one also after the run has closed
    }
    Reply::Duplicate
}
