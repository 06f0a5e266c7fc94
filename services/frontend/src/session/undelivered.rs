//! Tasks that never left this process: their worker went away first. Activities go back to the queue at once, under the same attempt number;
//! nobody can have begun them. A workflow task runs into its timeout.

use crate::api;
use crate::edge::Edge;
use futures::Stream;
use harvest_ids::WorkerId;
use harvest_proto::v1::server_message::Message;
use harvest_proto::v1::{CloseActivityRequest, Released, ServerMessage, close_activity_request};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::Status;

/// How long owners are asked to take an attempt back; afterwards it is lost when nobody announces it.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(10);

/// Gives a task back.
pub(super) async fn give_back(edge: &Edge, worker_id: &WorkerId, message: &Message) {
    let Message::ActivityTask(task) = message else { return };
    let outcome = Some(close_activity_request::Outcome::Released(Released {}));
    let request = CloseActivityRequest { task_token: task.task_token.clone(), worker_id: worker_id.to_string(), outcome, decision_ahead: None };
    match api::close_activity::close_activity(edge, request, edge.deadline_in(GIVE_BACK_TIMEOUT)).await {
        Ok(_) => tracing::debug!(%worker_id, "an attempt that did not reach its worker was given back"),
        Err(error) => tracing::debug!(%worker_id, %error, "an attempt could not be given back: it is lost when nobody announces it"),
    }
}

/// What a worker reads. Dropped: what it has not read is given back.
pub(crate) struct Outgoing {
    /// Empty only once dropped.
    messages: Option<mpsc::Receiver<Result<ServerMessage, Status>>>,
    edge: Arc<Edge>,
    worker_id: WorkerId,
}

impl Outgoing {
    pub(super) fn new(messages: mpsc::Receiver<Result<ServerMessage, Status>>, edge: Arc<Edge>, worker_id: WorkerId) -> Self {
        Self { messages: Some(messages), edge, worker_id }
    }
}

impl Stream for Outgoing {
    type Item = Result<ServerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.as_mut().map_or(Poll::Ready(None), |messages| messages.poll_recv(context))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let Some(mut messages) = self.messages.take() else { return };
        messages.close();
        let (edge, worker_id) = (self.edge.clone(), self.worker_id.clone());
        drop(harvest_runtime::spawn("undelivered tasks", async move {
            while let Some(message) = messages.recv().await {
                if let Some(message) = message.ok().and_then(|message| message.message) {
                    give_back(&edge, &worker_id, &message).await;
                }
            }
        }));
    }
}
