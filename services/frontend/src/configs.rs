//! Calls of the config service: any of its processes answers.

use harvest_persistence::control::ServiceKind;
use harvest_proto::internal::v1::config_service_client::ConfigServiceClient;
use harvest_rpc::{Channels, Error, MAX_MESSAGE_BYTES, deadline, retry_until};
use harvest_shards::Directory;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// A client of a config process.
pub(crate) type ConfigClient = ConfigServiceClient<Channel>;

/// The way to the config service.
pub(crate) struct Configs {
    directory: Directory,
    channels: Arc<Channels>,
    /// Which process is asked first; moves on when one fails.
    turn: AtomicUsize,
}

impl Configs {
    pub(crate) fn new(directory: Directory, channels: Arc<Channels>) -> Self {
        Self { directory, channels, turn: AtomicUsize::new(0) }
    }

    /// Asks one process after the other until one answers, refuses for good, or the deadline passes.
    pub(crate) async fn call<M: Clone, T, F>(&self, deadline: Instant, message: M, send: impl Fn(ConfigClient, Request<M>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        retry_until(deadline, || async {
            let members = self.directory.members(ServiceKind::Config);
            let turn = self.turn.load(Ordering::Relaxed);
            let Some(member) = members.get(turn % members.len().max(1)) else {
                return Err(Error::unavailable("no process of the config service is known"));
            };
            let client = ConfigClient::new(self.channels.get(&member.address)?).max_decoding_message_size(MAX_MESSAGE_BYTES);
            let answer = send(client, deadline::request(message.clone(), deadline)).await.map(Response::into_inner).map_err(Error::from);
            if answer.as_ref().is_err_and(Error::retryable) {
                self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
            }
            answer
        })
        .await
    }
}
