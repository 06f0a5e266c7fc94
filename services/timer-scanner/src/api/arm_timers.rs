//! `ArmTimers`: an owner announces near deadlines.

use super::Api;
use harvest_ids::{ExecutionId, ShardId, Timestamp};
use harvest_proto::internal::v1::{ArmTimersCall, ArmTimersReply, Deadline};
use harvest_rpc::Error;

/// Most deadlines of one call.
const MAX_DEADLINES: usize = 1_000;

pub(super) fn arm_timers(api: &Api, call: &ArmTimersCall) -> Result<ArmTimersReply, Error> {
    if call.deadlines.len() > MAX_DEADLINES {
        return Err(Error::invalid("deadlines", format_args!("deadlines has {} entries; allowed are {MAX_DEADLINES}", call.deadlines.len())));
    }
    let deadlines = call.deadlines.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    api.scanner.announce(ShardId(call.shard_id), deadlines);
    Ok(ArmTimersReply {})
}

fn parse(deadline: &Deadline) -> Result<(ExecutionId, Timestamp), Error> {
    let bytes =
        <[u8; 16]>::try_from(deadline.execution_id.as_ref()).map_err(|_| Error::invalid("deadlines.execution_id", "execution_id must have 16 bytes"))?;
    let id = ExecutionId::from_uuid(uuid::Uuid::from_bytes(bytes)).map_err(|error| Error::invalid("deadlines.execution_id", error))?;
    Ok((id, Timestamp::from_millis(deadline.due_at_ms)))
}
