//! A worker session says which attempts it is running.

use super::{Api, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, Operation};
use harvest_ids::WorkerId;
use harvest_proto::internal::v1::AnnounceCall;
use harvest_proto::v1::AnnounceReply;
use harvest_rpc::Error;
use harvest_wire::token;

/// Most tokens of one announcement.
const MAX_TOKENS: usize = 10_000;

pub(super) async fn announce(api: &Api, call: AnnounceCall) -> Result<AnnounceReply, Error> {
    if call.task_tokens.len() > MAX_TOKENS {
        return Err(Error::limit("announced_attempts", u64::try_from(call.task_tokens.len()).unwrap_or(u64::MAX), 10_000));
    }
    let worker_id = WorkerId::new(&call.worker_id).map_err(|error| Error::invalid("worker_id", error))?;
    let tokens = call.task_tokens.iter().map(|bytes| token::decode(bytes)).collect::<Result<Vec<_>, _>>().map_err(malformed)?;
    match api.call(call.shard_id, Operation::Announce { worker_id, tokens }).await? {
        Answer::Announced { cancel_requested, lost } => {
            Ok(AnnounceReply { cancel_requested: cancel_requested.iter().map(token::encode).collect(), lost: lost.iter().map(token::encode).collect() })
        }
        other => Err(unexpected(&other)),
    }
}
