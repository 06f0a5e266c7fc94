//! A signal arrives.

use super::{Api, request, target, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, Operation};
use harvest_proto::internal::v1::SignalWorkflowCall;
use harvest_proto::v1::SignalWorkflowResponse;
use harvest_rpc::Error;
use harvest_wire::start::{Limits, SignalWorkflow};
use harvest_workflow_core::input::Input;

pub(super) async fn signal_workflow(api: &Api, call: SignalWorkflowCall) -> Result<SignalWorkflowResponse, Error> {
    let signal = SignalWorkflow::from_proto(request(call.request)?, &Limits::default()).map_err(malformed)?;
    let input = Input::Signal { name: signal.name, payload: signal.payload, request_id: signal.request_id };
    let operation = Operation::Input { target: target(&signal.workflow), follow_chain: true, input };
    match api.call(call.shard_id, operation).await? {
        Answer::Decided { execution_id, fresh, .. } => Ok(SignalWorkflowResponse { signal_delivered: fresh, execution_id: execution_id.to_string() }),
        other => Err(unexpected(&other)),
    }
}
