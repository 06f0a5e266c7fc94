//! Somebody asks the run to cancel itself.

use super::Emitter;
use super::commands::bounded_text;
use crate::decision::Reply;
use crate::event::EventKind;
use harvest_ids::RequestId;

/// Asking twice is asking once: the first reason stays.
pub(super) fn request_cancel(emitter: &mut Emitter<'_>, reason: &str, request_id: Option<&RequestId>) -> Reply {
    if emitter.state.cancel_requested().is_some() {
        if request_id.is_some_and(|id| !emitter.state.request_seen(id)) {
            emitter.remember(request_id); // so that its repetition is one also after the run has closed
        }
        return Reply::Duplicate;
    }
    emitter.event(EventKind::WorkflowCancelRequested { reason: bounded_text(reason) });
    emitter.remember(request_id);
    Reply::Done
}
