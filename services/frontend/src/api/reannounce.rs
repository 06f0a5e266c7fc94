//! The new owner of a shard asks what the workers of this frontend are running.

use crate::edge::Edge;
use crate::routing::HistoryClient;
use bytes::Bytes;
use futures::StreamExt as _;
use harvest_ids::{Epoch, ShardId, WorkerId};
use harvest_persistence::control::ServiceKind;
use harvest_proto::internal::v1::{AnnounceCall, ReannounceCall, ReannounceReply};
use harvest_rpc::{Error, deadline, retry_until};
use harvest_shards::Owner;
use tokio::time::Instant;

/// Most attempts in one call to the owner.
const ATTEMPTS_PER_CALL: usize = 10_000;
/// How many sessions are announced at once.
const SESSIONS_AT_ONCE: usize = 64;

/// Answers when the owner has answered for all attempts of all sessions.
pub(crate) async fn reannounce(edge: &Edge, call: ReannounceCall, deadline: Instant) -> Result<ReannounceReply, Error> {
    let shard = ShardId(call.shard_id);
    let owner = Owner { process_id: call.owner_process_id, address: call.owner_address, epoch: Epoch(call.epoch) };
    check_member(edge, &owner).await?;
    let directory = edge.router.directory();
    let client = HistoryClient::new(edge.router.channels().get(&owner.address)?);
    if !directory.taken_over(shard, owner) {
        return Err(Error::not_owned(shard, directory.owner(shard).map(|owner| owner.address).as_deref()));
    }
    let mut calls = Vec::new();
    for (worker_id, tokens) in edge.sessions.running(|slot| directory.shard_of(slot) == Some(shard)) {
        calls.extend(tokens.chunks(ATTEMPTS_PER_CALL).map(|tokens| (worker_id.clone(), tokens.to_vec())));
    }
    let announcements = calls.into_iter().map(|(worker_id, tokens)| announce(client.clone(), shard, worker_id, tokens, deadline));
    let mut announcements = std::pin::pin!(futures::stream::iter(announcements).buffer_unordered(SESSIONS_AT_ONCE));
    let mut answer = Ok(ReannounceReply {});
    while let Some(announced) = announcements.next().await {
        // The others are announced all the same.
        if let Err(error) = announced {
            answer = Err(error);
        }
    }
    answer
}

/// Only history processes of the fleet are believed and told.
async fn check_member(edge: &Edge, owner: &Owner) -> Result<(), Error> {
    let directory = edge.router.directory();
    let is_member = || directory.members(ServiceKind::History).iter().any(|member| member.process_id == owner.process_id && member.address == owner.address);
    if !is_member()
        && let Err(error) = directory.refresh_now().await
    {
        tracing::debug!(%error, "the members could not be refreshed");
    }
    if is_member() { Ok(()) } else { Err(Error::unavailable(format!("process {:?} is not known to be a member of the fleet", owner.process_id))) }
}

/// What the owner says of the attempts is not passed on: the worker's next announcement hears it.
async fn announce(client: HistoryClient, shard: ShardId, worker_id: WorkerId, task_tokens: Vec<Bytes>, deadline: Instant) -> Result<(), Error> {
    let call = AnnounceCall { shard_id: shard.0, worker_id: worker_id.to_string(), task_tokens };
    let attempt = || async {
        let answer = client.clone().announce(deadline::request(call.clone(), deadline)).await;
        answer.map(drop).map_err(Error::from)
    };
    let answer = retry_until(deadline, attempt).await;
    if let Err(error) = &answer {
        tracing::debug!(%worker_id, %shard, %error, "attempts could not be announced to the shard's new owner");
    }
    answer
}
