//! An attempt of an activity ends or reports progress.

use super::workflow_task::input;
use super::{Api, request, unexpected};
use crate::reply::malformed;
use crate::shard::operation::Answer;
use harvest_proto::internal::v1::{CloseActivityCall, HeartbeatCall};
use harvest_proto::v1::{CloseActivityResponse, HeartbeatResponse};
use harvest_rpc::Error;
use harvest_wire::worker;
use harvest_workflow_core::input::Input;

pub(super) async fn close_activity(api: &Api, call: CloseActivityCall) -> Result<CloseActivityResponse, Error> {
    let (token, worker_id, outcome) = worker::close_activity(request(call.request)?).map_err(malformed)?;
    api.call(call.shard_id, input(&token.clone(), Input::CloseActivity { token, worker_id, outcome })).await?;
    Ok(CloseActivityResponse {})
}

pub(super) async fn heartbeat(api: &Api, call: HeartbeatCall) -> Result<HeartbeatResponse, Error> {
    let (token, worker_id, details) = worker::heartbeat(request(call.request)?).map_err(malformed)?;
    match api.call(call.shard_id, input(&token.clone(), Input::Heartbeat { token, worker_id, details })).await? {
        Answer::Decided { cancel_requested, .. } => Ok(HeartbeatResponse { cancel_requested }),
        other => Err(unexpected(&other)),
    }
}
