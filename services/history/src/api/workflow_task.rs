//! A worker answers a workflow task.

use super::{Api, request, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, Operation, Target};
use harvest_proto::internal::v1::{CompleteWorkflowTaskCall, FailWorkflowTaskCall};
use harvest_proto::v1::{CompleteWorkflowTaskResponse, FailWorkflowTaskResponse};
use harvest_rpc::{Error, Reason};
use harvest_wire::worker;
use harvest_workflow_core::input::{Input, TaskToken};
use harvest_workflow_core::record::WorkflowTaskFailure;

pub(super) async fn complete_workflow_task(api: &Api, call: CompleteWorkflowTaskCall) -> Result<CompleteWorkflowTaskResponse, Error> {
    let decided = worker::complete_workflow_task(request(call.request)?).map_err(malformed)?;
    match decided.decision {
        Ok(complete) => {
            let token = decided.token;
            match api.call(call.shard_id, input(&token, Input::CompleteWorkflowTask(Box::new(complete)))).await? {
                Answer::Decided { try_again, .. } => Ok(CompleteWorkflowTaskResponse { try_again }),
                other => Err(unexpected(&other)),
            }
        }
        Err(error) => {
            // The worker sent commands that are no commands: its task fails, so that it is tried again, and the worker is told why.
            let cause = WorkflowTaskFailure::WorkerError { message: error.to_string() };
            let failure = Input::FailWorkflowTask { token: decided.token.clone(), worker_id: decided.worker_id, cause };
            api.call(call.shard_id, input(&decided.token, failure)).await?;
            Err(Error { field: Some(error.field().to_owned()), ..Error::new(Reason::BadDecision, error.to_string()) })
        }
    }
}

pub(super) async fn fail_workflow_task(api: &Api, call: FailWorkflowTaskCall) -> Result<FailWorkflowTaskResponse, Error> {
    let (token, worker_id, cause) = worker::fail_workflow_task(request(call.request)?).map_err(malformed)?;
    api.call(call.shard_id, input(&token.clone(), Input::FailWorkflowTask { token, worker_id, cause })).await?;
    Ok(FailWorkflowTaskResponse {})
}

pub(super) fn input(token: &TaskToken, input: Input) -> Operation {
    Operation::Input { target: Target::Execution(token.execution_id), follow_chain: false, input }
}
