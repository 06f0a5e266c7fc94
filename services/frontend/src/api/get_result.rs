//! The outcome of a chain is waited for.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::GetResultCall;
use harvest_proto::v1::{GetResultRequest, GetResultResponse};
use harvest_rpc::Error;
use harvest_wire::start::GetResult;
use tokio::time::Instant;

pub(crate) async fn get_result(edge: &Edge, request: GetResultRequest, deadline: Instant) -> Result<GetResultResponse, Error> {
    let wanted = GetResult::from_proto(request.clone()).map_err(malformed)?;
    // The wait comes on top of the time for the call itself, and goes on where it was after a takeover.
    let began = edge.clock.monotonic();
    let make = |shard_id| {
        let left = wanted.wait.saturating_sub(edge.clock.monotonic().saturating_sub(began));
        let wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        GetResultCall { shard_id, request: Some(GetResultRequest { wait_ms, ..request.clone() }) }
    };
    let deadline = deadline + wanted.wait;
    edge.while_serving(edge.router.call(wanted.workflow.slot(), deadline, make, |mut client, call| async move { client.get_result(call).await })).await
}
