//! `Offer`: one stream per history process.

use super::Api;
use crate::dispatch;
use crate::state::{Item, Kind, Offer, OfferKey, SourceId};
use harvest_ids::{Epoch, EventId, ExecutionId, Namespace, ShardId, TaskQueue, WorkerId};
use harvest_proto::internal::v1::{self as internal, OfferMessage, OfferReply, OfferWindow, offer_message};
use harvest_rpc::Error;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Longest preference for the worker that has a run in memory.
const MAX_STICKY_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn serve(api: Api, messages: Streaming<OfferMessage>) -> ReceiverStream<Result<OfferReply, Status>> {
    let (replies, stream) = mpsc::channel(4);
    drop(harvest_runtime::spawn("offers", async move {
        let ended = tokio::select! {
            () = api.shutdown.cancelled() => Err(Status::unavailable("matching is shutting down")),
            () = replies.closed() => Ok(()),
            ended = read(&api, messages, &replies) => ended,
        };
        if let Err(status) = ended {
            // The other side is gone: it knows that the stream broke.
            drop(replies.send(Err(status)).await);
        }
    }));
    ReceiverStream::new(stream)
}

/// Removes the source when the stream ends, however it ends.
struct Registered<'a> {
    api: &'a Api,
    id: SourceId,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.api.dispatcher.remove_source(self.id);
    }
}

async fn read(api: &Api, mut messages: Streaming<OfferMessage>, replies: &mpsc::Sender<Result<OfferReply, Status>>) -> Result<(), Status> {
    let hello = match messages.message().await?.and_then(|first| first.message) {
        Some(offer_message::Message::Hello(hello)) => hello,
        _ => return Err(Error::invalid("hello", "the first message of the stream must be hello").into()),
    };
    if hello.address.is_empty() {
        return Err(Error::invalid("hello.address", "address must not be empty").into());
    }
    let source = Registered { api, id: api.dispatcher.add_source(hello.address.clone()) };
    tracing::debug!(history = hello.process_id, address = hello.address, "a history process offers tasks");
    let window = OfferReply { window: Some(OfferWindow { offers_per_queue: api.window }) };
    if replies.send(Ok(window)).await.is_err() {
        return Ok(());
    }
    while let Some(message) = messages.message().await? {
        let Some(offer_message::Message::Offer(offer)) = message.message else { continue }; // a newer release's message
        match parse(offer, source.id) {
            Ok(offer) => api.dispatcher.offer(offer),
            // One bad offer must not break the stream, and with it all others.
            Err(error) => tracing::warn!(%error, history = hello.process_id, "an offer is malformed"),
        }
    }
    Ok(())
}

fn parse(offer: internal::Offer, source: SourceId) -> Result<Offer, Error> {
    let namespace = Namespace::new(&offer.namespace).map_err(|error| Error::invalid("namespace", error))?;
    let task_queue = TaskQueue::new(&offer.task_queue).map_err(|error| Error::invalid("task_queue", error))?;
    let id = <[u8; 16]>::try_from(offer.execution_id.as_ref()).map_err(|_| Error::invalid("execution_id", "execution_id must have 16 bytes"))?;
    let execution_id = ExecutionId::from_uuid(uuid::Uuid::from_bytes(id)).map_err(|error| Error::invalid("execution_id", error))?;
    let item = match dispatch::kind(offer.kind()) {
        Some(Kind::Workflow) => Item::Workflow,
        Some(Kind::Activity) => Item::Activity(EventId(offer.activity_id)),
        Some(Kind::Query) if !offer.query_token.is_empty() && offer.query_token.len() <= 1_024 => Item::Query(offer.query_token),
        Some(Kind::Query) => return Err(Error::invalid("query_token", "query_token must have 1 to 1024 bytes")),
        None => return Err(Error::invalid("kind", "kind must be workflow, activity or query")),
    };
    let sticky = match offer.sticky_worker_id.as_str() {
        "" => None,
        worker => Some(WorkerId::new(worker).map_err(|error| Error::invalid("sticky_worker_id", error))?),
    };
    Ok(Offer {
        key: OfferKey { execution_id, item },
        shard_id: ShardId(offer.shard_id),
        epoch: Epoch(offer.epoch),
        namespace,
        task_queue,
        sticky,
        sticky_timeout: Duration::from_millis(offer.sticky_timeout_ms).min(MAX_STICKY_TIMEOUT),
        source,
        arrival: 0,
        arrived: Duration::ZERO,
        failures: 0,
    })
}
