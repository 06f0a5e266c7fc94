//! A handle of one run.

use crate::client::{Client, ClientError, WorkflowOutcomeError, new_request_id};
use crate::error::details_value;
use crate::payload;
use harvest_proto::v1::{
    CancelWorkflowRequest, Event, GetHistoryRequest, GetResultRequest, GetResultResponse, GetWorkflowRequest, PauseWorkflowRequest, QueryWorkflowRequest,
    ResumeWorkflowRequest, SignalWorkflowRequest, TerminateWorkflowRequest, WorkflowInfo, WorkflowRef,
};
use harvest_wire::{failure, payload as wire_payload};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::time::Duration;

/// The longest wait that is asked of a server at once.
const WAIT: Duration = Duration::from_secs(30);
/// Events per page of history.
const PAGE: u32 = 500;

/// One run, or the chain of a business key. `R` is the type of its result.
#[derive(Clone)]
pub struct WorkflowHandle<R> {
    client: Client,
    reference: WorkflowRef,
    workflow_id: String,
    started_fresh: bool,
    result: PhantomData<fn() -> R>,
}

impl<R> WorkflowHandle<R> {
    pub(crate) fn new(client: Client, reference: WorkflowRef, workflow_id: String, started_fresh: bool) -> Self {
        Self { client, reference, workflow_id, started_fresh, result: PhantomData }
    }

    /// The run's execution id; empty for a handle by business key.
    pub fn execution_id(&self) -> &str {
        &self.reference.execution_id
    }

    /// The business key; empty for a handle by execution id.
    pub fn workflow_id(&self) -> &str {
        &self.workflow_id
    }

    /// Whether the start made a new run rather than finding one.
    pub fn started_fresh(&self) -> bool {
        self.started_fresh
    }

    /// Waits for the result, however long it takes; follows continue-as-new. Bound it with a timeout of your own.
    ///
    /// # Errors
    /// [`WorkflowOutcomeError`].
    pub async fn result(&self) -> Result<R, WorkflowOutcomeError>
    where
        R: DeserializeOwned,
    {
        loop {
            if let Some(result) = self.poll_result(WAIT).await? {
                return Ok(result);
            }
        }
    }

    /// Waits for the result, at most so long (60 s at a time); `None` while the run is open.
    ///
    /// # Errors
    /// [`WorkflowOutcomeError`].
    pub async fn poll_result(&self, wait: Duration) -> Result<Option<R>, WorkflowOutcomeError>
    where
        R: DeserializeOwned,
    {
        let wait = wait.min(Duration::from_secs(60));
        let request = GetResultRequest { workflow: Some(self.reference.clone()), wait_ms: u64::try_from(wait.as_millis()).unwrap_or(60_000) };
        let (patience, one_try) = (self.client.patience + wait, wait + Duration::from_secs(10));
        let call = |mut service: crate::client::Service, request| async move { service.get_result(request).await };
        let reply = self.client.call_for(patience, Some(one_try), request, call).await?;
        outcome(reply)
    }

    /// Sends a signal. Once it returns the signal is durable.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn signal(&self, name: &str, value: impl Serialize) -> Result<(), ClientError> {
        self.signal_once(name, value, &new_request_id()).await
    }

    /// The same under a request id of the caller's: repeating it sends the signal once.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn signal_once(&self, name: &str, value: impl Serialize, request_id: &str) -> Result<(), ClientError> {
        let request = SignalWorkflowRequest {
            workflow: Some(self.reference.clone()),
            signal_name: name.to_owned(),
            payload: Some(wire_payload::to_proto(&payload::to_payload("signal", &value)?)),
            request_id: request_id.to_owned(),
        };
        self.client.call(request, |mut service, request| async move { service.signal_workflow(request).await }).await?;
        Ok(())
    }

    /// Asks the workflow's code: `handle.query("status", ()).await?`. Leaves no trace.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn query<T: DeserializeOwned>(&self, name: &str, args: impl Serialize) -> Result<T, ClientError> {
        let request = QueryWorkflowRequest {
            workflow: Some(self.reference.clone()),
            query_name: name.to_owned(),
            args: Some(wire_payload::to_proto(&payload::to_payload("query argument", &args)?)),
            timeout_ms: 0,
        };
        let reply = self.client.call(request, |mut service, request| async move { service.query_workflow(request).await }).await?;
        read("query result", reply.result)
    }

    /// Asks the run to cancel itself. It ends as CANCELLED when its code says so.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel(&self, reason: &str) -> Result<(), ClientError> {
        let request = CancelWorkflowRequest { workflow: Some(self.reference.clone()), reason: reason.to_owned(), request_id: new_request_id() };
        self.client.call(request, |mut service, request| async move { service.cancel_workflow(request).await }).await?;
        Ok(())
    }

    /// Ends the run without asking it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn terminate(&self, reason: &str) -> Result<(), ClientError> {
        let request = TerminateWorkflowRequest { workflow: Some(self.reference.clone()), reason: reason.to_owned(), request_id: new_request_id() };
        self.client.call(request, |mut service, request| async move { service.terminate_workflow(request).await }).await?;
        Ok(())
    }

    /// Stops handing out the run's tasks until it is resumed, at the latest after 24 hours. What workers have in their hands goes on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pause(&self, reason: &str) -> Result<(), ClientError> {
        self.pause_for(None, reason).await
    }

    /// The same with a time of its own after which the run goes on by itself, at most 24 hours.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pause_for(&self, longest: impl Into<Option<Duration>>, reason: &str) -> Result<(), ClientError> {
        let longest_ms = crate::options::span("longest", longest.into())?.map(harvest_ids::DurationMs::as_millis);
        let request = PauseWorkflowRequest { workflow: Some(self.reference.clone()), reason: reason.to_owned(), request_id: new_request_id(), longest_ms };
        self.client.call(request, |mut service, request| async move { service.pause_workflow(request).await }).await?;
        Ok(())
    }

    /// Lets a paused run go on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn resume(&self) -> Result<(), ClientError> {
        let request = ResumeWorkflowRequest { workflow: Some(self.reference.clone()), request_id: new_request_id() };
        self.client.call(request, |mut service, request| async move { service.resume_workflow(request).await }).await?;
        Ok(())
    }

    /// What is known of the run without its history.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn describe(&self) -> Result<WorkflowInfo, ClientError> {
        let request = GetWorkflowRequest { workflow: Some(self.reference.clone()) };
        let reply = self.client.call(request, |mut service, request| async move { service.get_workflow(request).await }).await?;
        reply.workflow.ok_or_else(|| ClientError::NotFound("the answer holds no run".to_owned()))
    }

    /// All events of the run, for tools and for [`WorkflowReplayer`](crate::WorkflowReplayer).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn history(&self) -> Result<Vec<Event>, ClientError> {
        let mut events = Vec::new();
        let mut from_event_id = 1;
        while from_event_id > 0 {
            let request = GetHistoryRequest { workflow: Some(self.reference.clone()), from_event_id, page_size: PAGE };
            let page = self.client.call(request, |mut service, request| async move { service.get_history(request).await }).await?;
            events.extend(page.events);
            from_event_id = page.next_event_id;
        }
        Ok(events)
    }
}

fn read<T: DeserializeOwned>(what: &str, value: Option<harvest_proto::v1::Payload>) -> Result<T, ClientError> {
    let value = wire_payload::or_null(what, value).map_err(|error| crate::HarvestError::Serialization { what: what.to_owned(), message: error.to_string() })?;
    Ok(payload::from_payload(what, &value)?)
}

fn outcome<R: DeserializeOwned>(reply: GetResultResponse) -> Result<Option<R>, WorkflowOutcomeError> {
    let failure = || {
        let wire = reply.failure.clone().unwrap_or_default();
        let details = failure::from_proto(wire.clone()).ok().and_then(|failure| details_value(failure.details.as_ref()));
        (wire.error_type, wire.message, details)
    };
    match reply.state.as_str() {
        "RUNNING" | "CONTINUED_AS_NEW" => Ok(None),
        "COMPLETED" => Ok(Some(read("workflow output", reply.output)?)),
        "FAILED" => {
            let (error_type, message, details) = failure();
            Err(WorkflowOutcomeError::Failed { error_type, message, details })
        }
        "CANCELLED" => Err(WorkflowOutcomeError::Cancelled(failure().1)),
        "TERMINATED" => Err(WorkflowOutcomeError::Terminated(failure().1)),
        "TIMED_OUT" => Err(WorkflowOutcomeError::TimedOut(failure().1)),
        other => Err(ClientError::Refused { reason: "UNKNOWN_STATE".to_owned(), message: format!("the server says that the run is {other:?}") }.into()),
    }
}
