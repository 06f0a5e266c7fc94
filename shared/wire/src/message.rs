//! Messages between runs, as an outbox row holds them and as they travel.

use crate::error::WireError;
use crate::field::{execution_id_bytes, id_bytes, name, required, span};
use crate::{event, failure, payload};
use bytes::Bytes;
use harvest_ids::EventId;
use harvest_proto::internal::v1 as stored;
use harvest_proto::internal::v1::child_closed::Outcome;
use harvest_proto::internal::v1::run_message::Body;
use harvest_workflow_core::message::{ChildOutcome, Message, MessageBody};
use prost::Message as _;

/// The bytes of an outbox row.
pub fn encode(message: &Message) -> Bytes {
    to_proto(message).encode_to_vec().into()
}

/// Reads an outbox row back.
///
/// # Errors
/// [`WireError`] when the bytes are not a message, or one newer than this program.
pub fn decode(bytes: &[u8]) -> Result<Message, WireError> {
    let it = stored::RunMessage::decode(bytes).map_err(|error| WireError::Garbage { field: "message".into(), problem: error.to_string() })?;
    from_proto(it)
}

/// To the wire.
pub fn to_proto(message: &Message) -> stored::RunMessage {
    let body = match &message.body {
        MessageBody::StartChild { namespace, child, parent, workflow_task_timeout } => Body::StartChild(stored::StartChild {
            namespace: namespace.to_string(),
            child: Some(event::child_to_proto(child)),
            parent: Some(event::parent_to_proto(parent)),
            workflow_task_timeout_ms: workflow_task_timeout.as_millis(),
        }),
        MessageBody::ChildStartRefused { initiated, failure: it } => {
            Body::ChildStartRefused(stored::ChildStartRefused { initiated_event_id: initiated.0, failure: Some(failure::to_proto(it)) })
        }
        MessageBody::ChildClosed { initiated, outcome } => {
            let outcome = match outcome {
                ChildOutcome::Completed(output) => Outcome::Completed(payload::to_proto(output)),
                ChildOutcome::Failed(it) => Outcome::Failed(failure::to_proto(it)),
            };
            Body::ChildClosed(stored::ChildClosed { initiated_event_id: initiated.0, outcome: Some(outcome) })
        }
        MessageBody::CancelChild { reason } => Body::CancelChild(stored::CancelChild { reason: reason.clone() }),
    };
    stored::RunMessage { source: id_bytes(message.source), target: id_bytes(message.target), body: Some(body) }
}

/// From the wire.
///
/// # Errors
/// [`WireError`] naming the field; a body newer than this program is refused.
pub fn from_proto(message: stored::RunMessage) -> Result<Message, WireError> {
    let Some(body) = message.body else {
        return Err(WireError::Garbage { field: "body".into(), problem: "the message's body is missing or newer than this program".into() });
    };
    let body = match body {
        Body::StartChild(it) => MessageBody::StartChild {
            namespace: name("namespace", it.namespace)?,
            child: Box::new(event::child("child", it.child)?),
            parent: event::parent(required("parent", it.parent)?)?,
            workflow_task_timeout: span("workflow_task_timeout_ms", it.workflow_task_timeout_ms)?,
        },
        Body::ChildStartRefused(it) => {
            MessageBody::ChildStartRefused { initiated: EventId(it.initiated_event_id), failure: failure::required("failure", it.failure)? }
        }
        Body::ChildClosed(it) => {
            let outcome = match required("outcome", it.outcome)? {
                Outcome::Completed(output) => ChildOutcome::Completed(payload::from_proto(output).map_err(|error| error.within("completed"))?),
                Outcome::Failed(it) => ChildOutcome::Failed(failure::from_proto(it).map_err(|error| error.within("failed"))?),
            };
            MessageBody::ChildClosed { initiated: EventId(it.initiated_event_id), outcome }
        }
        Body::CancelChild(it) => MessageBody::CancelChild { reason: it.reason },
    };
    Ok(Message { source: execution_id_bytes("source", &message.source)?, target: execution_id_bytes("target", &message.target)?, body })
}
