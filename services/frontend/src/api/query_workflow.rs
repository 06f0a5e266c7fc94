//! Workflow code is asked.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::QueryWorkflowCall;
use harvest_proto::v1::{QueryWorkflowRequest, QueryWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::start::QueryWorkflow;
use tokio::time::Instant;

pub(crate) async fn query_workflow(edge: &Edge, request: QueryWorkflowRequest, deadline: Instant) -> Result<QueryWorkflowResponse, Error> {
    let query = QueryWorkflow::from_proto(request.clone(), &edge.options.limits).map_err(malformed)?;
    // The owner counts the query's own time; the deadline leaves room for its answer to say that it passed.
    let deadline = deadline + query.timeout;
    let make = |shard_id| QueryWorkflowCall { shard_id, request: Some(request.clone()) };
    edge.while_serving(edge.router.call(query.workflow.slot(), deadline, make, |mut client, call| async move { client.query_workflow(call).await })).await
}
