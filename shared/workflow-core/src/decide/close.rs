//! What the end of a run causes elsewhere.

use super::Emitter;
use crate::event::EventKind;
use crate::message::MessageBody;
use crate::record::Control;
use harvest_ids::ExecutionId;

/// Notes that the run is late, once. Also at its end: whether it was late does not depend on who looked at the clock first.
pub(super) fn note_breach(emitter: &mut Emitter<'_>) {
    if emitter.state.is_late(emitter.at) {
        emitter.control(Control::SlaBreached { at: emitter.at });
    }
}

/// Appends the closing event, asks awaited children that are still open to cancel themselves, and tells a parent that waits.
///
/// A successor (continue-as-new) cannot await its predecessor's children, so they are asked to cancel then too; the parent waits on.
/// Detached children are left alone.
pub(super) fn close(emitter: &mut Emitter<'_>, kind: EventKind) {
    note_breach(emitter);
    let awaited: Vec<ExecutionId> = emitter.state.children.values().filter(|child| child.is_awaited()).filter_map(|child| child.cancel_target()).collect();
    emitter.event(kind);
    for child in awaited {
        emitter.message(child, MessageBody::CancelChild { reason: "the parent run has ended".to_owned() });
    }
    let parent = emitter.state.started().and_then(|started| started.parent.as_ref()).filter(|parent| !parent.detached).cloned();
    let outcome = emitter.state.outcome().and_then(|outcome| outcome.for_parent());
    if let (Some(parent), Some(outcome)) = (parent, outcome) {
        emitter.message(parent.execution_id, MessageBody::ChildClosed { initiated: parent.initiated, outcome });
    }
}
