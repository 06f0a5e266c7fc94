//! What is known of a run.

use super::{Api, request, target, unexpected};
use crate::reply::{malformed, workflow_info};
use crate::shard::operation::{Answer, Operation};
use harvest_proto::internal::v1::GetWorkflowCall;
use harvest_proto::v1::GetWorkflowResponse;
use harvest_rpc::Error;
use harvest_wire::start::WorkflowRef;

pub(super) async fn get_workflow(api: &Api, call: GetWorkflowCall) -> Result<GetWorkflowResponse, Error> {
    let workflow = WorkflowRef::from_proto(request(call.request)?.workflow).map_err(malformed)?;
    match api.call(call.shard_id, Operation::Describe(target(&workflow))).await? {
        Answer::Described(view) => Ok(GetWorkflowResponse { workflow: Some(workflow_info(&view)) }),
        other => Err(unexpected(&other)),
    }
}
