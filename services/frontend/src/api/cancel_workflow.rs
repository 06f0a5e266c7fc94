//! A run is asked to cancel itself.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::CancelWorkflowCall;
use harvest_proto::v1::{CancelWorkflowRequest, CancelWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::start::EndWorkflow;
use tokio::time::Instant;

pub(crate) async fn cancel_workflow(edge: &Edge, mut request: CancelWorkflowRequest, deadline: Instant) -> Result<CancelWorkflowResponse, Error> {
    let end = EndWorkflow::from_cancel(request.clone(), &edge.options.limits).map_err(malformed)?;
    request.request_id = end.request_id.unwrap_or_else(|| edge.new_request_id()).to_string();
    let make = |shard_id| CancelWorkflowCall { shard_id, request: Some(request.clone()) };
    edge.router.call(end.workflow.slot(), deadline, make, |mut client, call| async move { client.cancel_workflow(call).await }).await
}
