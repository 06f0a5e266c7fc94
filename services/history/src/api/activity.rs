//! An attempt of an activity ends or reports progress.

use super::workflow_task::{decided, input};
use super::{Api, request, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, EagerOperation, Operation};
use harvest_proto::internal::v1::{CloseActivityCall, HeartbeatCall};
use harvest_proto::v1::{CloseActivityResponse, HeartbeatResponse};
use harvest_rpc::Error;
use harvest_wire::worker::{self, ClosedActivity};
use harvest_workflow_core::input::Input;

pub(super) async fn close_activity(api: &Api, call: CloseActivityCall) -> Result<CloseActivityResponse, Error> {
    let ClosedActivity { token, worker_id, outcome, ahead } = worker::close_activity(request(call.request)?).map_err(malformed)?;
    let close = Input::CloseActivity { token: token.clone(), worker_id, outcome };
    let operation = match ahead {
        Some(mut ahead) => {
            let eager_commands = std::mem::take(&mut ahead.eager_commands);
            Operation::Eager(Box::new(EagerOperation { input: close, eager_commands, ahead: Some(ahead) }))
        }
        None => input(&token, close),
    };
    match api.call(call.shard_id, operation).await? {
        Answer::Given(given) => Ok(CloseActivityResponse { decided: Some(decided(*given)) }),
        Answer::Decided { .. } => Ok(CloseActivityResponse { decided: None }),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn heartbeat(api: &Api, call: HeartbeatCall) -> Result<HeartbeatResponse, Error> {
    let (token, worker_id, details) = worker::heartbeat(request(call.request)?).map_err(malformed)?;
    match api.call(call.shard_id, input(&token.clone(), Input::Heartbeat { token, worker_id, details })).await? {
        Answer::Decided { cancel_requested, .. } => Ok(HeartbeatResponse { cancel_requested }),
        other => Err(unexpected(&other)),
    }
}
