//! A run is paused.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::PauseWorkflowCall;
use harvest_proto::v1::{PauseWorkflowRequest, PauseWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::pause::PauseWorkflow;
use tokio::time::Instant;

pub(crate) async fn pause_workflow(edge: &Edge, mut request: PauseWorkflowRequest, deadline: Instant) -> Result<PauseWorkflowResponse, Error> {
    let pause = PauseWorkflow::from_proto(request.clone(), &edge.options.limits).map_err(malformed)?;
    request.request_id = pause.request_id.unwrap_or_else(|| edge.new_request_id()).to_string();
    let make = |shard_id| PauseWorkflowCall { shard_id, request: Some(request.clone()) };
    edge.router.call(pause.workflow.slot(), deadline, make, |mut client, call| async move { client.pause_workflow(call).await }).await
}
