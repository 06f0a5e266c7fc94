//! Messages from runs of another shard arrive.

use super::Api;
use crate::reply::malformed;
use crate::shard::operation::{Operation, Refusal};
use harvest_ids::ShardId;
use harvest_proto::internal::v1::{DeliverMessagesCall, DeliverMessagesReply};
use harvest_rpc::Error;
use harvest_workflow_core::message::MessageBody;

pub(super) async fn deliver_messages(api: &Api, call: DeliverMessagesCall) -> Result<DeliverMessagesReply, Error> {
    let shard_id = ShardId(call.shard_id);
    let shard = api.host.shard(shard_id).map_err(|refusal| api.error(shard_id, refusal))?;
    let mut answers = Vec::with_capacity(call.messages.len());
    for message in call.messages {
        let mut message = harvest_wire::message::from_proto(message).map_err(malformed)?;
        if let MessageBody::StartChild { namespace, child, .. } = &mut message.body {
            child.execution_timeout = child.execution_timeout.or_else(|| api.declared(namespace, &child.workflow_type).execution_timeout);
        }
        let operation = Operation::Deliver { message: Box::new(message), key_looked_up: false };
        answers.push(shard.submit(operation).map_err(|refusal| api.error(shard_id, refusal))?);
    }
    for answer in answers {
        if let Err(refusal) = answer.await.unwrap_or(Err(Refusal::NotOwner))
            && !refusal.ends_delivery()
        {
            return Err(api.error(shard_id, refusal));
        }
    }
    Ok(DeliverMessagesReply {})
}
