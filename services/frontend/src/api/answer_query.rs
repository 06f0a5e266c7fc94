//! A worker answers a query.

use crate::edge::Edge;
use harvest_proto::internal::v1::AnswerQueryCall;
use harvest_proto::v1::{AnswerQueryRequest, AnswerQueryResponse};
use harvest_rpc::Error;
use harvest_wire::token;
use tokio::time::Instant;

pub(crate) async fn answer_query(edge: &Edge, request: AnswerQueryRequest, deadline: Instant) -> Result<AnswerQueryResponse, Error> {
    let token = token::decode(&request.query_token).map_err(|error| Error::invalid("query_token", error))?;
    let make = |shard_id| AnswerQueryCall { shard_id, request: Some(request.clone()) };
    edge.router.call(token.execution_id.slot(), deadline, make, |mut client, call| async move { client.answer_query(call).await }).await
}
