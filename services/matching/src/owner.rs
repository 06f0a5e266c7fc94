//! The owners of shards, as matching calls them.

use async_trait::async_trait;
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_proto::internal::v1::{CloseActivityCall, TakeTaskCall, TakeTaskReply};
use harvest_rpc::client::Channels;
use harvest_rpc::{Error, MAX_MESSAGE_BYTES};
use std::sync::Arc;

/// A history process, at the address that came with its offers.
#[async_trait]
pub trait Owners: Send + Sync + 'static {
    /// Takes an offered task for a worker.
    async fn take_task(&self, address: &str, call: TakeTaskCall) -> Result<TakeTaskReply, Error>;

    /// Gives an attempt back that could not be handed to its worker.
    async fn release_activity(&self, address: &str, call: CloseActivityCall) -> Result<(), Error>;
}

/// Owners by gRPC.
pub(crate) struct GrpcOwners {
    channels: Arc<Channels>,
}

impl GrpcOwners {
    pub(crate) fn new(channels: Arc<Channels>) -> Self {
        Self { channels }
    }

    fn client(&self, address: &str) -> Result<HistoryServiceClient<tonic::transport::Channel>, Error> {
        Ok(HistoryServiceClient::new(self.channels.get(address)?).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES))
    }
}

#[async_trait]
impl Owners for GrpcOwners {
    async fn take_task(&self, address: &str, call: TakeTaskCall) -> Result<TakeTaskReply, Error> {
        Ok(self.client(address)?.take_task(call).await?.into_inner())
    }

    async fn release_activity(&self, address: &str, call: CloseActivityCall) -> Result<(), Error> {
        self.client(address)?.close_activity(call).await?;
        Ok(())
    }
}
