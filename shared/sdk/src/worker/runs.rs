//! Getting a run into memory, up to date with its history.

use crate::channels::MAX_MESSAGE_BYTES;
use crate::worker::WorkerShared;
use crate::workflow::run::{Run, RunError};
use harvest_ids::EventId;
use harvest_proto::v1::workflow_service_client::WorkflowServiceClient;
use harvest_proto::v1::{self, GetHistoryRequest, WorkflowRef};
use harvest_sdk_replay::Completion;
use harvest_wire::event;
use harvest_workflow_core::event::Event;
use tokio::time::Instant;

/// Events per page of history.
const PAGE: u32 = 1_000;

impl From<harvest_wire::WireError> for RunError {
    fn from(error: harvest_wire::WireError) -> Self {
        Self::Worker(format!("the history cannot be read: {error}"))
    }
}

/// Reads the events from `from` to `last` and feeds them.
async fn fetch(worker: &WorkerShared, execution_id: &str, run: &mut Run, last: EventId, deadline: Instant) -> Result<(), RunError> {
    while run.next_event() <= last {
        let from = run.next_event();
        let request = GetHistoryRequest {
            workflow: Some(WorkflowRef { namespace: worker.config.namespace.clone(), execution_id: execution_id.to_owned(), ..WorkflowRef::default() }),
            from_event_id: from.0,
            page_size: PAGE,
        };
        let call = |connection| {
            let request = request.clone();
            async move { WorkflowServiceClient::new(connection).max_decoding_message_size(MAX_MESSAGE_BYTES).get_history(request).await }
        };
        let page = worker.channels.retry(deadline, None, call).await.map_err(|status| RunError::Worker(format!("the history cannot be read: {status}")))?;
        feed(run, page.into_inner().events, last)?;
        if run.next_event() == from {
            return Err(RunError::Worker(format!("the history ends at event {}, before event {last} of the task", from.0.saturating_sub(1))));
        }
    }
    Ok(())
}

fn feed(run: &mut Run, events: Vec<v1::Event>, last: EventId) -> Result<(), RunError> {
    let events: Vec<Event> = event::list(events)?;
    run.feed(events.into_iter().filter(|event| event.id <= last))
}

/// Brings `run` up to event `last`: with the events at hand as far as they fit, the rest from the server.
pub(crate) async fn catch_up(
    worker: &WorkerShared,
    execution_id: &str,
    run: &mut Run,
    events: Vec<v1::Event>,
    last: EventId,
    deadline: Instant,
) -> Result<(), RunError> {
    if let Some(first) = events.first()
        && EventId(first.event_id) > run.next_event()
    {
        fetch(worker, execution_id, run, EventId(first.event_id.saturating_sub(1)).min(last), deadline).await?;
    }
    feed(run, events, last)?;
    fetch(worker, execution_id, run, last, deadline).await
}

/// Lets the code decide about everything up to `seen`, which was fed, until `limit` at the longest.
pub(crate) async fn decide(run: Run, seen: EventId, limit: Instant) -> Result<(Run, Completion), RunError> {
    step(run, limit, move |run| run.decide(seen)).await
}

/// Lets the code go a step, until `limit` at the longest.
pub(crate) async fn step<T: Send + 'static>(
    mut run: Run,
    limit: Instant,
    go: impl FnOnce(&mut Run) -> Result<T, RunError> + Send + 'static,
) -> Result<(Run, T), RunError> {
    // In a task of its own, so that code that never comes to rest holds up its own run only.
    let deciding = tokio::spawn(async move { go(&mut run).map(|done| (run, done)) });
    match tokio::time::timeout_at(limit, deciding).await {
        Ok(Ok(decided)) => decided,
        Ok(Err(join)) => Err(RunError::Worker(format!("the decision was lost: {join}"))),
        Err(_) => Err(RunError::Worker("the workflow code did not come to rest in time: it blocks, or never waits".to_owned())),
    }
}
