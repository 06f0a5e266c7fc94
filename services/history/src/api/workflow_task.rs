//! A worker answers a workflow task.

use super::take_task::activity_task;
use super::{Api, request, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, EagerOperation, Given, Operation, Target};
use harvest_proto::internal::v1::{CompleteWorkflowTaskCall, FailWorkflowTaskCall};
use harvest_proto::v1::{CompleteWorkflowTaskResponse, FailWorkflowTaskResponse};
use harvest_rpc::{Error, Reason};
use harvest_wire::worker::{self, Decided};
use harvest_workflow_core::input::{Input, TaskToken};
use harvest_workflow_core::measure::event_bytes;
use harvest_workflow_core::record::WorkflowTaskFailure;

/// Most bytes of new events in an answer; a worker that would get more goes on without them.
const MAX_NEW_EVENT_BYTES: u64 = 1024 * 1024;

pub(super) async fn complete_workflow_task(api: &Api, call: CompleteWorkflowTaskCall) -> Result<CompleteWorkflowTaskResponse, Error> {
    let Decided { token, worker_id, decision, eager_commands } = worker::complete_workflow_task(request(call.request)?).map_err(malformed)?;
    match decision {
        Ok(complete) => {
            let complete = Input::CompleteWorkflowTask(Box::new(complete));
            let operation = if eager_commands.is_empty() {
                input(&token, complete)
            } else {
                Operation::Eager(Box::new(EagerOperation { input: complete, eager_commands, ahead: None }))
            };
            match api.call(call.shard_id, operation).await? {
                Answer::Decided { try_again, .. } => Ok(CompleteWorkflowTaskResponse { try_again, ..Default::default() }),
                Answer::Given(given) => Ok(decided(*given)),
                other => Err(unexpected(&other)),
            }
        }
        Err(error) => {
            // The worker sent commands that are no commands: its task fails, so that it is tried again, and the worker is told why.
            let cause = WorkflowTaskFailure::WorkerError { message: error.to_string() };
            let failure = Input::FailWorkflowTask { token: token.clone(), worker_id, cause };
            api.call(call.shard_id, input(&token, failure)).await?;
            Err(Error { field: Some(error.field().to_owned()), ..Error::new(Reason::BadDecision, error.to_string()) })
        }
    }
}

/// What a worker gets by its decision, on the wire.
pub(super) fn decided(given: Given) -> CompleteWorkflowTaskResponse {
    let bytes = given.new_events.iter().map(|event| event_bytes(&event.kind)).fold(0, u64::saturating_add);
    let new_events = if bytes <= MAX_NEW_EVENT_BYTES { given.new_events.iter().map(harvest_wire::event::to_proto).collect() } else { Vec::new() };
    CompleteWorkflowTaskResponse {
        try_again: given.try_again,
        eager_activities: given.activities.into_iter().map(activity_task).collect(),
        new_events,
        decided_at_ms: given.decided_at.as_millis(),
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
