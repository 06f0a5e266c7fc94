//! A signal is sent.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::SignalWorkflowCall;
use harvest_proto::v1::{SignalWorkflowRequest, SignalWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::start::SignalWorkflow;
use tokio::time::Instant;

pub(crate) async fn signal_workflow(edge: &Edge, mut request: SignalWorkflowRequest, deadline: Instant) -> Result<SignalWorkflowResponse, Error> {
    let signal = SignalWorkflow::from_proto(request.clone(), &edge.options.limits).map_err(malformed)?;
    request.request_id = signal.request_id.unwrap_or_else(|| edge.new_request_id()).to_string();
    let make = |shard_id| SignalWorkflowCall { shard_id, request: Some(request.clone()) };
    edge.router.call(signal.workflow.slot(), deadline, make, |mut client, call| async move { client.signal_workflow(call).await }).await
}
