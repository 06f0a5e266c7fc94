//! Where snapshots are pulled from and acknowledgements are sent to: any process of the config service.

use crate::{FleetConfig, Version};
use async_trait::async_trait;
use harvest_ids::{Epoch, ShardId};
use harvest_proto::internal::v1::config_service_client::ConfigServiceClient;
use harvest_proto::internal::v1::{AcknowledgeCall, GetSnapshotCall, ShardAcknowledgement};
use harvest_rpc::client::Channels;
use harvest_rpc::server::MAX_MESSAGE_BYTES;
use harvest_rpc::{Error, Reason};
use harvest_runtime::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::transport::Channel;

/// How long one process is waited for before the next is asked.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// An owner's word that every batch decided under an older version has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardVersion {
    /// The shard.
    pub shard_id: ShardId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// What the shard decides by.
    pub version: Version,
}

/// The config service, as seen by a subscriber.
#[async_trait]
pub trait ConfigSource: Send + Sync + 'static {
    /// The present configuration.
    async fn pull(&self) -> Result<FleetConfig, Error>;

    /// Says which version shards decide by.
    async fn acknowledge(&self, process_id: &str, shards: &[ShardVersion]) -> Result<(), Error>;
}

/// The config service by gRPC.
pub struct GrpcSource {
    channels: Arc<Channels>,
    clock: Arc<dyn Clock>,
    addresses: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Which process is asked first; moves on when one fails.
    turn: AtomicUsize,
}

impl GrpcSource {
    /// Asks the processes that `addresses` lists at the time of a call.
    pub fn new(channels: Arc<Channels>, clock: Arc<dyn Clock>, addresses: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { channels, clock, addresses: Box::new(addresses), turn: AtomicUsize::new(0) }
    }

    /// Asks one process after the other until one answers.
    async fn ask<T, F>(&self, call: impl Fn(ConfigServiceClient<Channel>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let addresses = (self.addresses)();
        let mut last = Error::unavailable("no process of the config service is known");
        for _ in 0..addresses.len() {
            let turn = self.turn.load(Ordering::Relaxed) % addresses.len();
            let client = ConfigServiceClient::new(self.channels.get(&addresses[turn])?).max_decoding_message_size(MAX_MESSAGE_BYTES);
            let answer = tokio::select! {
                answer = call(client) => answer.map_err(Error::from),
                () = self.clock.sleep(CALL_TIMEOUT) => Err(Error::new(Reason::Unavailable, format!("{} does not answer", addresses[turn]))),
            };
            match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(error) => last = error,
            }
            self.turn.store(turn + 1, Ordering::Relaxed);
        }
        Err(last)
    }
}

#[async_trait]
impl ConfigSource for GrpcSource {
    async fn pull(&self) -> Result<FleetConfig, Error> {
        let snapshot = self.ask(|mut client| async move { client.get_snapshot(GetSnapshotCall {}).await }).await?;
        Ok(snapshot.into())
    }

    async fn acknowledge(&self, process_id: &str, shards: &[ShardVersion]) -> Result<(), Error> {
        let shard = |shard: &ShardVersion| ShardAcknowledgement { shard_id: shard.shard_id.0, epoch: shard.epoch.0, version: Some(shard.version.into()) };
        let call = AcknowledgeCall { service: "history".to_owned(), process_id: process_id.to_owned(), shards: shards.iter().map(shard).collect() };
        self.ask(|mut client| {
            let call = call.clone();
            async move { client.acknowledge(call).await }
        })
        .await
        .map(drop)
    }
}
