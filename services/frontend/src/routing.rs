//! Finds the owner of a run's shard and asks it, again and elsewhere while the caller waits.

use harvest_ids::{ShardId, Slot};
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_rpc::{Channels, Error, MAX_MESSAGE_BYTES, Reason, deadline, retry_until};
use harvest_shards::{Directory, Owner};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// A refusal that asks for a longer pause than this is the caller's to repeat.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A client of a history process.
pub(crate) type HistoryClient = HistoryServiceClient<Channel>;

/// The way to the owners of shards. Routing tables are hints: whoever is asked checks again.
pub(crate) struct Router {
    directory: Directory,
    channels: Arc<Channels>,
}

impl Router {
    pub(crate) fn new(directory: Directory, channels: Arc<Channels>) -> Self {
        Self { directory, channels }
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn channels(&self) -> &Arc<Channels> {
        &self.channels
    }

    /// The shard of a slot.
    pub(crate) fn shard_of(&self, slot: Slot) -> Result<ShardId, Error> {
        self.directory.shard_of(slot).ok_or_else(|| Error::unavailable(format!("no shard is known for slot {slot}")))
    }

    /// Asks the owner of a slot's shard until it answers, refuses for good, or the deadline passes. `make` builds the message for a shard, again
    /// for every try; it must carry the same request id each time.
    pub(crate) async fn call<M, T, F>(
        &self,
        slot: Slot,
        deadline: Instant,
        make: impl Fn(u32) -> M,
        send: impl Fn(HistoryClient, Request<M>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let answer = retry_until(deadline, || async {
            match self.attempt(slot, deadline, &make, &send).await {
                // An owner that asks for a long pause has waited itself: its store is away, and the caller is told so.
                Err(error) if error.retry_after.is_some_and(|pause| pause > LONGEST_PAUSE) => Ok(Err(error)),
                // Calls that an owner has no room for must not pile up here instead: whoever sends so many is told to wait.
                Err(error) if error.reason == Reason::Overloaded => Ok(Err(error)),
                answer => answer.map(Ok),
            }
        });
        answer.await.and_then(|answer| answer).map_err(|error| match error.reason {
            // Who owns what is the fleet's own affair: for the caller the service is unavailable.
            Reason::ShardNotOwned => Error::unavailable(error.message),
            _ => error,
        })
    }

    async fn attempt<M, T, F>(&self, slot: Slot, deadline: Instant, make: impl Fn(u32) -> M, send: impl Fn(HistoryClient, Request<M>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let shard = self.shard_of(slot)?;
        let Some(owner) = self.directory.owner(shard) else {
            self.refresh().await;
            return Err(Error::unavailable(format!("shard {shard} has no owner just now")));
        };
        let client =
            HistoryClient::new(self.channels.get(&owner.address)?).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES);
        let answer = tokio::select! {
            answer = send(client, deadline::request(make(shard.0), deadline)) => answer.map_err(Error::from),
            // A frozen owner answers nothing, and its connection stands: its successor is known before any timeout.
            () = self.moved(shard, &owner) => Err(Error::unavailable(format!("shard {shard} has moved"))),
        };
        match answer {
            Ok(answer) => {
                harvest_runtime::crash::point("frontend.forwarded");
                Ok(answer.into_inner())
            }
            Err(error) => {
                self.learn(shard, &owner, &error).await;
                Err(error)
            }
        }
    }

    /// Returns when another process is believed to own the shard.
    async fn moved(&self, shard: ShardId, asked: &Owner) {
        let mut changes = self.directory.changes();
        loop {
            if self.directory.owner(shard).is_none_or(|owner| owner.address != asked.address) {
                return;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Takes from a refusal what it says of the routing table.
    async fn learn(&self, shard: ShardId, asked: &Owner, error: &Error) {
        match (error.reason, error.owner_address()) {
            (Reason::ShardNotOwned, Some(address)) if address != asked.address => self.directory.hint(shard, address),
            (Reason::ShardNotOwned | Reason::Unavailable, _) => self.refresh().await,
            _ => {}
        }
    }

    async fn refresh(&self) {
        if let Err(error) = self.directory.refresh_now().await {
            tracing::debug!(%error, "the routing table could not be refreshed");
        }
    }
}
