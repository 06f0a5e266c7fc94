//! One run is described.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::GetWorkflowCall;
use harvest_proto::v1::{GetWorkflowRequest, GetWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::start::WorkflowRef;
use tokio::time::Instant;

pub(crate) async fn get_workflow(edge: &Edge, request: GetWorkflowRequest, deadline: Instant) -> Result<GetWorkflowResponse, Error> {
    let workflow = WorkflowRef::from_proto(request.workflow.clone()).map_err(malformed)?;
    let make = |shard_id| GetWorkflowCall { shard_id, request: Some(request.clone()) };
    edge.router.call(workflow.slot(), deadline, make, |mut client, call| async move { client.get_workflow(call).await }).await
}
