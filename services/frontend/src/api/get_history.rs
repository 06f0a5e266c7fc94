//! A page of a history is read.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::GetHistoryCall;
use harvest_proto::v1::{GetHistoryRequest, GetHistoryResponse};
use harvest_rpc::Error;
use harvest_wire::start::GetHistory;
use tokio::time::Instant;

pub(crate) async fn get_history(edge: &Edge, request: GetHistoryRequest, deadline: Instant) -> Result<GetHistoryResponse, Error> {
    let page = GetHistory::from_proto(request.clone()).map_err(malformed)?;
    let make = |shard_id| GetHistoryCall { shard_id, request: Some(request.clone()) };
    edge.router.call(page.workflow.slot(), deadline, make, |mut client, call| async move { client.get_history(call).await }).await
}
