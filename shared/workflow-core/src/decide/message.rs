//! Messages from other runs. Each kind has a natural key, so a repetition changes nothing; nothing here refuses, so no message can block
//! those behind it.

use super::Emitter;
use super::commands::bounded_failure;
use super::request_cancel::request_cancel;
use super::start;
use crate::decision::{Reject, Reply};
use crate::event::{EventKind, WorkflowStarted};
use crate::input::Carried;
use crate::message::{ChildOutcome, Message, MessageBody};
use harvest_ids::EventId;

/// A message to a run that does not exist: only a start makes sense.
pub(super) fn on_missing(emitter: &mut Emitter<'_>, message: &Message) -> Result<Reply, Reject> {
    match &message.body {
        MessageBody::StartChild { namespace, child, parent, workflow_task_timeout } => {
            let started = WorkflowStarted::of_child(namespace, child, parent, *workflow_task_timeout);
            start::start(emitter, &started, &Carried::default())
        }
        MessageBody::ChildStartRefused { .. } | MessageBody::ChildClosed { .. } | MessageBody::CancelChild { .. } => Err(Reject::NotFound),
    }
}

/// A message to an open run.
pub(super) fn on_open(emitter: &mut Emitter<'_>, message: &Message) -> Reply {
    match &message.body {
        MessageBody::StartChild { .. } => Reply::Duplicate,
        MessageBody::ChildStartRefused { initiated, failure } => child_ended(emitter, *initiated, &ChildOutcome::Failed(failure.clone())),
        MessageBody::ChildClosed { initiated, outcome } => child_ended(emitter, *initiated, outcome),
        MessageBody::CancelChild { reason } => request_cancel(emitter, reason, None),
    }
}

fn child_ended(emitter: &mut Emitter<'_>, started: EventId, outcome: &ChildOutcome) -> Reply {
    if !emitter.state.children.get(&started).is_some_and(|child| child.is_awaited()) {
        return Reply::Duplicate;
    }
    emitter.event(match outcome {
        ChildOutcome::Completed(output) => EventKind::ChildWorkflowCompleted { started, output: output.clone() },
        ChildOutcome::Failed(failure) => EventKind::ChildWorkflowFailed { started, failure: bounded_failure(failure.clone(), emitter.limits) },
    });
    Reply::Done
}
