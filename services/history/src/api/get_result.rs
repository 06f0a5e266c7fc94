//! The outcome of a chain, waiting for it.

use super::{Api, request, target, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, ClosedView, Operation, Refusal, Target};
use harvest_ids::ShardId;
use harvest_proto::internal::v1::GetResultCall;
use harvest_proto::v1::{Failure, GetResultResponse};
use harvest_rpc::Error;
use harvest_wire::start::GetResult;
use harvest_workflow_core::state::{Outcome, Status};

pub(super) async fn get_result(api: &Api, call: GetResultCall) -> Result<GetResultResponse, Error> {
    let get = GetResult::from_proto(request(call.request)?).map_err(malformed)?;
    let shard_id = ShardId(call.shard_id);
    let deadline = api.clock.monotonic() + get.wait;
    let (mut run, mut status, _) = api.locate(call.shard_id, target(&get.workflow)).await?;
    loop {
        // A run named by its key is looked up once: the wait is for that run's chain, whatever is started under the key later.
        let left = deadline.saturating_sub(api.clock.monotonic());
        if status == Status::Running && left.is_zero() {
            return Ok(running(run.to_string()));
        }
        let shard = api.host.shard(shard_id).map_err(|refusal| api.error(shard_id, refusal))?;
        let waiting = shard.submit(Operation::AwaitClose(Target::Execution(run))).map_err(|refusal| api.error(shard_id, refusal))?;
        let answer = tokio::select! {
            answer = waiting => answer.unwrap_or(Err(Refusal::NotOwner)),
            () = api.clock.sleep(left), if status == Status::Running => return Ok(running(run.to_string())),
        };
        match answer.map_err(|refusal| api.error(shard_id, refusal))? {
            Answer::Closed(closed) => match closed.outcome.continued_as() {
                Some(next) => (run, status, _) = api.locate(call.shard_id, Target::Execution(next)).await?,
                None => return Ok(response(*closed)),
            },
            other => return Err(unexpected(&other)),
        }
    }
}

fn running(execution_id: String) -> GetResultResponse {
    GetResultResponse { state: Status::Running.as_str().to_owned(), execution_id, output: None, failure: None, closed_at_ms: 0 }
}

fn response(closed: ClosedView) -> GetResultResponse {
    let state = closed.outcome.status().as_str().to_owned();
    let engine = |error_type: &str, message: String| Some(Failure { message, error_type: error_type.to_owned(), details: None, non_retryable: true });
    let (output, failure) = match closed.outcome {
        Outcome::Completed { output } => (Some(harvest_wire::payload::to_proto(&output)), None),
        Outcome::Failed { failure } => (None, Some(harvest_wire::failure::to_proto(&failure))),
        Outcome::Cancelled { reason } => (None, engine("Cancelled", reason)),
        Outcome::Terminated { reason } => (None, engine("Terminated", reason)),
        Outcome::TimedOut { timeout } => (None, engine("TimedOut", format!("the workflow's {timeout:?} timeout passed"))),
        Outcome::ContinuedAsNew { .. } => (None, None),
    };
    GetResultResponse { state, execution_id: closed.execution_id.to_string(), output, failure, closed_at_ms: closed.closed_at.as_millis() }
}
