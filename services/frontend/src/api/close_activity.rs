//! An attempt of an activity has ended.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::CloseActivityCall;
use harvest_proto::v1::{CloseActivityRequest, CloseActivityResponse};
use harvest_rpc::{Error, Reason};
use harvest_wire::worker::{self, ClosedActivity};
use tokio::time::Instant;

pub(crate) async fn close_activity(edge: &Edge, request: CloseActivityRequest, deadline: Instant) -> Result<CloseActivityResponse, Error> {
    let ClosedActivity { token, worker_id, .. } = worker::close_activity(request.clone()).map_err(malformed)?;
    let make = |shard_id| CloseActivityCall { shard_id, request: Some(request.clone()) };
    let answer = edge.router.call(token.execution_id.slot(), deadline, make, |mut client, call| async move { client.close_activity(call).await }).await;
    let is_over = match &answer {
        Ok(_) => true,
        Err(error) => matches!(error.reason, Reason::StaleTask | Reason::WorkflowClosed | Reason::WorkflowNotFound),
    };
    if let Ok(CloseActivityResponse { decided: Some(decided) }) = &answer {
        // They are the worker's from now on, though they came by no session.
        decided.eager_activities.iter().for_each(|task| edge.sessions.handed(&worker_id, &task.task_token));
    }
    // Not before the owner's answer: one that dies with this call leaves the attempt to its successor.
    if is_over {
        edge.sessions.ended(&worker_id, &request.task_token);
    }
    answer
}
