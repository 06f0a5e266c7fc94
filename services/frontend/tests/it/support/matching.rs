//! A matching process whose streams the test holds in its hands.

use futures::Stream;
use harvest_proto::internal::v1::matching_service_server::{MatchingService, MatchingServiceServer};
use harvest_proto::internal::v1::work_message::Message;
use harvest_proto::internal::v1::{OfferMessage, OfferReply, WorkHello, WorkMessage};
use harvest_proto::v1::ServerMessage;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// One stream of a worker session.
pub struct WorkStream {
    pub hello: WorkHello,
    inbound: Streaming<WorkMessage>,
    pub tasks: mpsc::Sender<Result<ServerMessage, Status>>,
}

impl WorkStream {
    /// The next credit or drain; `None` when the frontend has ended its side.
    pub async fn next(&mut self) -> Option<Message> {
        self.inbound.message().await.ok().flatten().and_then(|message| message.message)
    }
}

#[derive(Clone)]
pub struct FakeMatching {
    opened: mpsc::Sender<WorkStream>,
    streams: Arc<Mutex<mpsc::Receiver<WorkStream>>>,
}

impl Default for FakeMatching {
    fn default() -> Self {
        let (opened, streams) = mpsc::channel(16);
        Self { opened, streams: Arc::new(Mutex::new(streams)) }
    }
}

impl FakeMatching {
    pub fn service(&self) -> MatchingServiceServer<Self> {
        MatchingServiceServer::new(self.clone())
    }

    /// The next stream that a session opens.
    pub async fn stream(&self) -> WorkStream {
        self.streams.lock().await.recv().await.unwrap()
    }
}

#[tonic::async_trait]
impl MatchingService for FakeMatching {
    type OfferStream = Pin<Box<dyn Stream<Item = Result<OfferReply, Status>> + Send>>;
    type WorkStream = ReceiverStream<Result<ServerMessage, Status>>;

    async fn offer(&self, _: Request<Streaming<OfferMessage>>) -> Result<Response<Self::OfferStream>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn work(&self, request: Request<Streaming<WorkMessage>>) -> Result<Response<Self::WorkStream>, Status> {
        let mut inbound = request.into_inner();
        let Some(Message::Hello(hello)) = inbound.message().await?.and_then(|message| message.message) else {
            return Err(Status::invalid_argument("hello first"));
        };
        let (tasks, receiver) = mpsc::channel(16);
        self.opened.send(WorkStream { hello, inbound, tasks }).await.unwrap();
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
