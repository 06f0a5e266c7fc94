//! The timer scanner says that something may be due.

use super::{Api, execution_id};
use crate::shard::operation::{Operation, Refusal, Target};
use harvest_ids::ShardId;
use harvest_proto::internal::v1::{FireTimersCall, FireTimersReply};
use harvest_rpc::Error;
use harvest_workflow_core::input::Input;

pub(super) async fn fire_timers(api: &Api, call: FireTimersCall) -> Result<FireTimersReply, Error> {
    let shard_id = ShardId(call.shard_id);
    let shard = api.host.shard(shard_id).map_err(|refusal| api.error(shard_id, refusal))?;
    let mut answers = Vec::with_capacity(call.execution_ids.len());
    for bytes in &call.execution_ids {
        let target = Target::Execution(execution_id(bytes)?);
        let wake = Operation::Input { target, follow_chain: false, input: Input::Wake };
        answers.push(shard.submit(wake).map_err(|refusal| api.error(shard_id, refusal))?);
    }
    // A run that is gone or closed owes nothing; what matters is that the shard is ours and has taken them all.
    for answer in answers {
        if let Ok(Err(refusal @ (Refusal::NotOwner | Refusal::Unavailable(_) | Refusal::StoreAway))) = answer.await {
            return Err(api.error(shard_id, refusal));
        }
    }
    Ok(FireTimersReply {})
}
