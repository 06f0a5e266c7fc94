//! Somebody ends the run, without asking it.

use super::Emitter;
use super::close::close;
use super::commands::bounded_text;
use crate::decision::Reply;
use crate::event::EventKind;
use harvest_ids::RequestId;

/// Always works on an open run. The request id is remembered before the end: nothing may follow a closing event.
pub(super) fn terminate(emitter: &mut Emitter<'_>, reason: &str, request_id: Option<&RequestId>) -> Reply {
    emitter.remember(request_id);
    close(emitter, EventKind::WorkflowTerminated { reason: bounded_text(reason) });
    Reply::Done
}
