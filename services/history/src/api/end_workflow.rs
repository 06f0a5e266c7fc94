//! A run is asked to cancel itself, or is ended.

use super::{Api, request, target, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, Operation};
use harvest_proto::internal::v1::{CancelWorkflowCall, TerminateWorkflowCall};
use harvest_proto::v1::{CancelWorkflowResponse, TerminateWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::start::{EndWorkflow, Limits, WorkflowRef};
use harvest_workflow_core::input::Input;

pub(super) async fn cancel_workflow(api: &Api, call: CancelWorkflowCall) -> Result<CancelWorkflowResponse, Error> {
    let end = EndWorkflow::from_cancel(request(call.request)?, &Limits::default()).map_err(malformed)?;
    let input = Input::RequestCancel { reason: end.reason, request_id: end.request_id };
    Ok(CancelWorkflowResponse { execution_id: decide(api, call.shard_id, &end.workflow, input).await? })
}

pub(super) async fn terminate_workflow(api: &Api, call: TerminateWorkflowCall) -> Result<TerminateWorkflowResponse, Error> {
    let end = EndWorkflow::from_terminate(request(call.request)?, &Limits::default()).map_err(malformed)?;
    let input = Input::Terminate { reason: end.reason, request_id: end.request_id };
    Ok(TerminateWorkflowResponse { execution_id: decide(api, call.shard_id, &end.workflow, input).await? })
}

async fn decide(api: &Api, shard_id: u32, workflow: &WorkflowRef, input: Input) -> Result<String, Error> {
    match api.call(shard_id, Operation::Input { target: target(workflow), follow_chain: true, input }).await? {
        Answer::Decided { execution_id, .. } => Ok(execution_id.to_string()),
        other => Err(unexpected(&other)),
    }
}
