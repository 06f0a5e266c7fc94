//! A run is ended from outside.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::TerminateWorkflowCall;
use harvest_proto::v1::{TerminateWorkflowRequest, TerminateWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::start::EndWorkflow;
use tokio::time::Instant;

pub(crate) async fn terminate_workflow(edge: &Edge, mut request: TerminateWorkflowRequest, deadline: Instant) -> Result<TerminateWorkflowResponse, Error> {
    let end = EndWorkflow::from_terminate(request.clone(), &edge.options.limits).map_err(malformed)?;
    request.request_id = end.request_id.unwrap_or_else(|| edge.new_request_id()).to_string();
    let make = |shard_id| TerminateWorkflowCall { shard_id, request: Some(request.clone()) };
    edge.router.call(end.workflow.slot(), deadline, make, |mut client, call| async move { client.terminate_workflow(call).await }).await
}
