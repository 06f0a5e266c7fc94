//! `Work`: one stream per worker session.

use super::Api;
use crate::dispatch::Output;
use crate::state::{Class, SessionId};
use harvest_ids::{Namespace, TaskQueue, WorkerId};
use harvest_proto::internal::v1::{WorkMessage, work_message};
use harvest_proto::v1::{Credit, ServerMessage};
use harvest_rpc::Error;
use std::pin::Pin;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Status, Streaming};

/// What a worker session reads.
pub(crate) type WorkStream = Pin<Box<dyn Stream<Item = Result<ServerMessage, Status>> + Send>>;

/// Most tasks on their way to one worker.
const BUFFERED_TASKS: usize = 64;

pub(super) fn serve(api: Api, messages: Streaming<WorkMessage>) -> WorkStream {
    let (output, stream) = mpsc::channel(BUFFERED_TASKS);
    drop(harvest_runtime::spawn("work", async move {
        let ended = tokio::select! {
            () = api.shutdown.cancelled() => Err(Status::unavailable("matching is shutting down")),
            () = output.closed() => Ok(()),
            ended = read(&api, messages, &output) => ended,
        };
        if let Err(status) = ended {
            // The other side is gone: it knows that the stream broke.
            drop(output.send((Err(status), None)).await);
        }
    }));
    // Its part of the bytes is given back as the message leaves.
    Box::pin(ReceiverStream::new(stream).map(|(message, _room)| message))
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
