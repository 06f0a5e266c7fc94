//! A run is paused, and goes on.

use super::{Api, request, target, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, Operation};
use harvest_proto::internal::v1::{PauseWorkflowCall, ResumeWorkflowCall};
use harvest_proto::v1::{PauseWorkflowResponse, ResumeWorkflowResponse};
use harvest_rpc::Error;
use harvest_wire::pause::{PauseWorkflow, ResumeWorkflow};
use harvest_wire::start::{Limits, WorkflowRef};
use harvest_workflow_core::input::Input;

pub(super) async fn pause_workflow(api: &Api, call: PauseWorkflowCall) -> Result<PauseWorkflowResponse, Error> {
    let pause = PauseWorkflow::from_proto(request(call.request)?, &Limits::default()).map_err(malformed)?;
    let input = Input::Pause { longest: pause.longest, reason: pause.reason, request_id: pause.request_id };
    let (execution_id, changed) = decide(api, call.shard_id, &pause.workflow, input).await?;
    Ok(PauseWorkflowResponse { execution_id, changed })
}

pub(super) async fn resume_workflow(api: &Api, call: ResumeWorkflowCall) -> Result<ResumeWorkflowResponse, Error> {
    let resume = ResumeWorkflow::from_proto(request(call.request)?).map_err(malformed)?;
    let (execution_id, changed) = decide(api, call.shard_id, &resume.workflow, Input::Resume { request_id: resume.request_id }).await?;
    Ok(ResumeWorkflowResponse { execution_id, changed })
}

async fn decide(api: &Api, shard_id: u32, workflow: &WorkflowRef, input: Input) -> Result<(String, bool), Error> {
    match api.call(shard_id, Operation::Input { target: target(workflow), follow_chain: true, input }).await? {
        Answer::Decided { execution_id, fresh, .. } => Ok((execution_id.to_string(), fresh)),
        other => Err(unexpected(&other)),
    }
}
