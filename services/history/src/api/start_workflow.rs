//! A run starts.

use super::take_task::workflow_task_with;
use super::{Api, request, unexpected};
use crate::reply::malformed;
use crate::shard::operation::{Answer, BusinessKey, Operation, StartOperation};
use harvest_fleet_config::WorkflowTypeInfo;
use harvest_proto::internal::v1::StartWorkflowCall;
use harvest_proto::v1::StartWorkflowResponse;
use harvest_rpc::Error;
use harvest_wire::start::{ConflictPolicy, Limits, StartWorkflow};

pub(super) async fn start_workflow(api: &Api, call: StartWorkflowCall) -> Result<StartWorkflowResponse, Error> {
    let start = StartWorkflow::from_proto(request(call.request)?, &Limits::default()).map_err(malformed)?;
    let workflow_id = start.workflow_id.ok_or_else(|| Error::invalid("workflow_id", "workflow_id is missing: the frontend makes one up"))?;
    let key = BusinessKey { namespace: start.namespace, workflow_type: start.workflow_type, workflow_id };
    let declared = call.declared.map_or_else(|| api.declared(&key.namespace, &key.workflow_type), |info| WorkflowTypeInfo::from_proto(&info));
    let operation = StartOperation {
        key: key.clone(),
        input: start.input,
        task_queue: start.task_queue,
        request_id: start.request_id,
        execution_timeout: start.execution_timeout.or(declared.execution_timeout),
        workflow_task_timeout: start.workflow_task_timeout,
        chain_execution_timeout: declared.chain_execution_timeout,
        sla: start.sla.or(declared.sla),
        fail_on_conflict: start.conflict_policy == ConflictPolicy::Fail,
        eager_worker: start.eager_worker,
    };
    match api.call(call.shard_id, Operation::Start(Box::new(operation))).await? {
        Answer::Started { execution_id, status, fresh, task } => Ok(StartWorkflowResponse {
            execution_id: execution_id.to_string(),
            workflow_id: key.workflow_id.to_string(),
            workflow_type: key.workflow_type.to_string(),
            state: status.as_str().to_owned(),
            started_fresh: fresh,
            warnings: Vec::new(),
            eager_workflow_task: task.map(|task| workflow_task_with(*task)),
        }),
        other => Err(unexpected(&other)),
    }
}
