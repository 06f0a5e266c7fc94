//! The way in: one file for each call.

mod offer;
mod work;

#[cfg(test)]
pub(crate) use work::Tasks;

use crate::dispatch::Dispatcher;
use harvest_proto::internal::v1::matching_service_server::MatchingService;
use harvest_proto::internal::v1::{OfferMessage, OfferReply, WorkMessage};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// Serves `MatchingService`.
#[derive(Clone)]
pub(crate) struct Api {
    pub dispatcher: Dispatcher,
    pub window: u32,
    /// Ends all streams.
    pub shutdown: CancellationToken,
}

#[tonic::async_trait]
impl MatchingService for Api {
    type OfferStream = ReceiverStream<Result<OfferReply, Status>>;
    type WorkStream = work::WorkStream;

    async fn offer(&self, request: Request<Streaming<OfferMessage>>) -> Result<Response<Self::OfferStream>, Status> {
        Ok(Response::new(offer::serve(self.clone(), request.into_inner())))
    }

    async fn work(&self, request: Request<Streaming<WorkMessage>>) -> Result<Response<Self::WorkStream>, Status> {
        Ok(Response::new(work::serve(self.clone(), request.into_inner())))
    }
}
