//! Task tokens: opaque to workers.

use crate::error::WireError;
use crate::field::{execution_id_bytes, id_bytes, name, required};
use bytes::Bytes;
use harvest_ids::{Attempt, Epoch, EventId};
use harvest_proto::internal::v1 as stored;
use harvest_workflow_core::input::TaskToken;
use harvest_workflow_core::record::Dispatch;
use prost::Message as _;

/// The bytes that a worker gets.
pub fn encode(token: &TaskToken) -> Bytes {
    stored::TaskToken {
        execution_id: id_bytes(token.execution_id),
        activity_id: token.activity_id.map_or(0, |id| id.0),
        attempt: token.attempt.0,
        dispatch: Some(dispatch_to_proto(&token.dispatch)),
    }
    .encode_to_vec()
    .into()
}

/// Reads the bytes that a worker gives back.
///
/// # Errors
/// [`WireError`] with field `task_token` when they are not a token.
pub fn decode(bytes: &[u8]) -> Result<TaskToken, WireError> {
    let garbage = |problem: String| WireError::Garbage { field: "task_token".into(), problem };
    if bytes.is_empty() {
        return Err(WireError::Missing { field: "task_token".into(), allowed: "the token that came with the task is allowed" });
    }
    let it = stored::TaskToken::decode(bytes).map_err(|error| garbage(error.to_string()))?;
    let read = || -> Result<TaskToken, WireError> {
        Ok(TaskToken {
            execution_id: execution_id_bytes("execution_id", &it.execution_id)?,
            activity_id: (it.activity_id != 0).then_some(EventId(it.activity_id)),
            attempt: Attempt(it.attempt),
            dispatch: dispatch_from_proto(required("dispatch", it.dispatch)?)?,
        })
    };
    read().map_err(|error| garbage(error.to_string()))
}

pub(crate) fn dispatch_to_proto(dispatch: &Dispatch) -> stored::Dispatch {
    stored::Dispatch { epoch: dispatch.epoch.0, sequence: dispatch.sequence, worker_id: dispatch.worker_id.to_string() }
}

pub(crate) fn dispatch_from_proto(it: stored::Dispatch) -> Result<Dispatch, WireError> {
    Ok(Dispatch { epoch: Epoch(it.epoch), sequence: it.sequence, worker_id: name("worker_id", it.worker_id)? })
}
