//! A worker could not decide.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::FailWorkflowTaskCall;
use harvest_proto::v1::{FailWorkflowTaskRequest, FailWorkflowTaskResponse};
use harvest_rpc::Error;
use harvest_wire::worker;
use tokio::time::Instant;

pub(crate) async fn fail_workflow_task(edge: &Edge, request: FailWorkflowTaskRequest, deadline: Instant) -> Result<FailWorkflowTaskResponse, Error> {
    let (token, ..) = worker::fail_workflow_task(request.clone()).map_err(malformed)?;
    let make = |shard_id| FailWorkflowTaskCall { shard_id, request: Some(request.clone()) };
    edge.router.call(token.execution_id.slot(), deadline, make, |mut client, call| async move { client.fail_workflow_task(call).await }).await
}
