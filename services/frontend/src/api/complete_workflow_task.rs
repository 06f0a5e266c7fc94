//! A worker has decided.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::CompleteWorkflowTaskCall;
use harvest_proto::v1::{CompleteWorkflowTaskRequest, CompleteWorkflowTaskResponse};
use harvest_rpc::Error;
use harvest_wire::token;
use tokio::time::Instant;

pub(crate) async fn complete_workflow_task(
    edge: &Edge,
    request: CompleteWorkflowTaskRequest,
    deadline: Instant,
) -> Result<CompleteWorkflowTaskResponse, Error> {
    let token = token::decode(&request.task_token).map_err(malformed)?;
    let make = |shard_id| CompleteWorkflowTaskCall { shard_id, request: Some(request.clone()) };
    edge.router.call(token.execution_id.slot(), deadline, make, |mut client, call| async move { client.complete_workflow_task(call).await }).await
}
