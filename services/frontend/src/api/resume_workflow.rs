//! A paused run goes on.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::ResumeWorkflowCall;
use harvest_proto::v1::{ResumeWorkflowRequest, ResumeWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::pause::ResumeWorkflow;
use tokio::time::Instant;

pub(crate) async fn resume_workflow(edge: &Edge, mut request: ResumeWorkflowRequest, deadline: Instant) -> Result<ResumeWorkflowResponse, Error> {
    let resume = ResumeWorkflow::from_proto(request.clone()).map_err(malformed)?;
    request.request_id = resume.request_id.unwrap_or_else(|| edge.new_request_id()).to_string();
    let make = |shard_id| ResumeWorkflowCall { shard_id, request: Some(request.clone()) };
    edge.router.call(resume.workflow.slot(), deadline, make, |mut client, call| async move { client.resume_workflow(call).await }).await
}
