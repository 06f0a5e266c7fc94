//! Workflow code is asked, and answers.

use super::{Api, request, target, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, Operation};
use harvest_ids::{DurationMs, WorkerId};
use harvest_proto::internal::v1::{AnswerQueryCall, QueryWorkflowCall};
use harvest_proto::v1::{AnswerQueryResponse, QueryWorkflowResponse};
use harvest_rpc::{Error, Reason};
use harvest_wire::start::{Limits, QueryWorkflow};
use harvest_workflow_core::payload::Failure;

pub(super) async fn query_workflow(api: &Api, call: QueryWorkflowCall) -> Result<QueryWorkflowResponse, Error> {
    let query = QueryWorkflow::from_proto(request(call.request)?, &Limits::default()).map_err(malformed)?;
    let timeout = DurationMs::from_duration("timeout_ms", query.timeout).map_err(|error| Error::invalid("timeout_ms", error))?;
    let operation = Operation::Query { target: target(&query.workflow), name: query.name, args: query.args, timeout };
    match api.call(call.shard_id, operation).await? {
        Answer::QueryAnswered(Ok(result)) => Ok(QueryWorkflowResponse { result: Some(harvest_wire::payload::to_proto(&result)) }),
        Answer::QueryAnswered(Err(failure)) => Err(query_error(failure)),
        other => Err(unexpected(&other)),
    }
}

fn query_error(failure: Failure) -> Error {
    let reason = match failure.error_type.as_str() {
        "UnknownQuery" => Reason::UnknownQuery,
        "HandlerPanic" => Reason::QueryPanicked,
        "NonDeterminism" => Reason::CodeMismatch,
        _ => Reason::QueryFailed,
    };
    Error::new(reason, failure.message).with("error_type", failure.error_type)
}

pub(super) async fn answer_query(api: &Api, call: AnswerQueryCall) -> Result<AnswerQueryResponse, Error> {
    let answer = request(call.request)?;
    let token = harvest_wire::token::decode(&answer.query_token).map_err(malformed)?;
    let worker_id = WorkerId::new(&answer.worker_id).map_err(|error| Error::invalid("worker_id", error))?;
    let outcome = harvest_wire::worker::query_outcome(answer.outcome).map_err(malformed)?;
    api.call(call.shard_id, Operation::AnswerQuery { token, worker_id, outcome }).await?;
    Ok(AnswerQueryResponse {})
}
