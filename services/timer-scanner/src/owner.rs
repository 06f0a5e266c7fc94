//! The owners of shards, as the scanner calls them.

use async_trait::async_trait;
use harvest_proto::internal::v1::FireTimersCall;
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_rpc::Error;
use harvest_rpc::client::Channels;
use std::sync::Arc;

/// A history process.
#[async_trait]
pub trait Owners: Send + Sync + 'static {
    /// Tells the owner at `address` that runs may have something due. Answered when what follows is durable.
    async fn fire_timers(&self, address: &str, call: FireTimersCall) -> Result<(), Error>;
}

/// Owners by gRPC.
pub(crate) struct GrpcOwners {
    channels: Arc<Channels>,
}

impl GrpcOwners {
    pub(crate) fn new(channels: Arc<Channels>) -> Self {
        Self { channels }
    }
}

#[async_trait]
impl Owners for GrpcOwners {
    async fn fire_timers(&self, address: &str, call: FireTimersCall) -> Result<(), Error> {
        HistoryServiceClient::new(self.channels.get(address)?).fire_timers(call).await?;
        Ok(())
    }
}
