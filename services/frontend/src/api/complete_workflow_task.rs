//! A worker has decided.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_ids::WorkerId;
use harvest_proto::internal::v1::CompleteWorkflowTaskCall;
use harvest_proto::v1::{CompleteWorkflowTaskRequest, CompleteWorkflowTaskResponse};
use harvest_rpc::Error;
use harvest_wire::{field, token};
use tokio::time::Instant;

pub(crate) async fn complete_workflow_task(
    edge: &Edge,
    request: CompleteWorkflowTaskRequest,
    deadline: Instant,
) -> Result<CompleteWorkflowTaskResponse, Error> {
    let token = token::decode(&request.task_token).map_err(malformed)?;
    let worker_id: WorkerId = field::name("worker_id", request.worker_id.clone()).map_err(malformed)?;
    let make = |shard_id| CompleteWorkflowTaskCall { shard_id, request: Some(request.clone()) };
    let answer =
        edge.router.call(token.execution_id.slot(), deadline, make, |mut client, call| async move { client.complete_workflow_task(call).await }).await?;
    // They are the worker's from now on, though they came by no session: the new owner of a shard is told of them like of all others.
    answer.eager_activities.iter().for_each(|task| edge.sessions.handed(&worker_id, &task.task_token));
    Ok(answer)
}
