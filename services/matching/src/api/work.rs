//! `Work`: one stream per worker session.

use super::Api;
use crate::dispatch::{Carried, Dispatcher, Output};
use crate::state::{Class, SessionId};
use harvest_ids::{Namespace, TaskQueue, WorkerId};
use harvest_proto::internal::v1::{WorkMessage, work_message};
use harvest_proto::v1::{Credit, ServerMessage};
use harvest_rpc::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

/// What a worker session reads.
pub(crate) type WorkStream = Pin<Box<dyn Stream<Item = Result<ServerMessage, Status>> + Send>>;

/// Most tasks on their way to one worker.
const BUFFERED_TASKS: usize = 64;

pub(super) fn serve(api: Api, messages: Streaming<WorkMessage>) -> WorkStream {
    let (output, stream) = mpsc::channel(BUFFERED_TASKS);
    let dispatcher = api.dispatcher.clone();
    drop(harvest_runtime::spawn("work", async move {
        let ended = tokio::select! {
            () = api.shutdown.cancelled() => Err(Status::unavailable("matching is shutting down")),
            () = output.closed() => Ok(()),
            ended = read(&api, messages, &output) => ended,
        };
        if let Err(status) = ended {
            // The other side is gone: it knows that the stream broke.
            drop(output.send(Carried::end(status)).await);
        }
    }));
    Box::pin(Tasks::new(stream, dispatcher))
}

/// Tasks for one worker session. Dropped: those that have not left are given back.
pub(crate) struct Tasks {
    /// Empty only once dropped.
    waiting: Option<mpsc::Receiver<Carried>>,
    dispatcher: Dispatcher,
}

impl Tasks {
    pub(crate) fn new(waiting: mpsc::Receiver<Carried>, dispatcher: Dispatcher) -> Self {
        Self { waiting: Some(waiting), dispatcher }
    }
}

impl Stream for Tasks {
    type Item = Result<ServerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.waiting.as_mut().map_or(Poll::Ready(None), |waiting| waiting.poll_recv(context).map(|carried| carried.map(Carried::leave)))
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        let Some(mut waiting) = self.waiting.take() else { return };
        waiting.close();
        let dispatcher = self.dispatcher.clone();
        drop(harvest_runtime::spawn("undelivered tasks", async move {
            // Ends once no task is being taken for this session any more.
            while let Some(carried) = waiting.recv().await {
                dispatcher.undelivered(carried).await;
            }
        }));
    }
}

/// Removes the session when the stream ends, however it ends.
struct Registered<'a> {
    api: &'a Api,
    id: SessionId,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.api.dispatcher.remove_session(self.id);
    }
}

async fn read(api: &Api, mut messages: Streaming<WorkMessage>, output: &Output) -> Result<(), Status> {
    let hello = match messages.message().await?.and_then(|first| first.message) {
        Some(work_message::Message::Hello(hello)) => hello,
        _ => return Err(Error::invalid("hello", "the first message of the stream must be hello").into()),
    };
    let namespace = Namespace::new(&hello.namespace).map_err(|error| Error::invalid("hello.namespace", error))?;
    let worker_id = WorkerId::new(&hello.worker_id).map_err(|error| Error::invalid("hello.worker_id", error))?;
    let session = Registered { api, id: api.dispatcher.add_session(namespace, worker_id, output.clone())? };
    while let Some(message) = messages.message().await? {
        match message.message {
            Some(work_message::Message::Credit(credit)) => give(api, session.id, &credit)?,
            Some(work_message::Message::Drain(_)) => api.dispatcher.drain(session.id),
            Some(work_message::Message::Hello(_)) => return Err(Error::invalid("hello", "hello must come once").into()),
            None => {} // a newer release's message
        }
    }
    Ok(())
}

fn give(api: &Api, session: SessionId, credit: &Credit) -> Result<(), Error> {
    let task_queue = TaskQueue::new(&credit.task_queue).map_err(|error| Error::invalid("credit.task_queue", error))?;
    api.dispatcher.credit(session, &task_queue, Class::Workflow, credit.workflow_tasks)?;
    api.dispatcher.credit(session, &task_queue, Class::Activity, credit.activity_tasks)
}
