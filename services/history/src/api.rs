//! `HistoryService`: one file per call. Each finds the shard, gives it an operation, and puts the answer on the wire.

mod activity;
mod announce;
mod deliver_messages;
mod end_workflow;
mod fire_timers;
mod get_history;
mod get_result;
mod get_workflow;
mod hand_over;
mod pause_workflow;
mod query_workflow;
mod signal_workflow;
mod start_workflow;
mod take_task;
mod workflow_task;

use crate::host::Host;
use crate::reply;
use crate::shard::operation::{Answer, BusinessKey, Operation, Refusal, Target};
use harvest_fleet_config::{ConfigHandle, WorkflowTypeInfo};
use harvest_ids::{EventId, ExecutionId, Namespace, ShardId, WorkflowType};
use harvest_persistence::store::ShardStore;
use harvest_proto::internal::v1 as internal;
use harvest_proto::internal::v1::history_service_server::HistoryService;
use harvest_proto::v1;
use harvest_rpc::Error;
use harvest_runtime::Clock;
use harvest_shards::{Directory, Handed};
use harvest_wire::start::WorkflowRef;
use harvest_workflow_core::state::Status;
use std::sync::Arc;
use tonic::{Request, Response};

/// What every call needs.
#[derive(Clone)]
pub struct Api {
    /// The shards.
    pub host: Arc<Host>,
    /// For reading histories.
    pub store: Arc<dyn ShardStore>,
    /// Where shards come in that other processes hand over.
    pub handed: Handed,
    /// For hints of owners.
    pub directory: Directory,
    /// What code declares about workflow types.
    pub config: ConfigHandle,
    /// For waits.
    pub clock: Arc<dyn Clock>,
}

impl Api {
    /// Gives a shard an operation.
    async fn call(&self, shard_id: u32, operation: Operation) -> Result<Answer, Error> {
        let shard_id = ShardId(shard_id);
        let answer = match self.host.shard(shard_id) {
            Ok(shard) => shard.call(operation).await,
            Err(refusal) => Err(refusal),
        };
        answer.map_err(|refusal| self.error(shard_id, refusal))
    }

    fn error(&self, shard_id: ShardId, refusal: Refusal) -> Error {
        let owner = self.directory.owner(shard_id).map(|owner| owner.address);
        reply::error(shard_id, owner.as_deref(), refusal)
    }

    /// What code declares about a type; nothing when no worker has registered it.
    fn declared(&self, namespace: &Namespace, workflow_type: &WorkflowType) -> WorkflowTypeInfo {
        self.config.get().workflow_type(namespace, workflow_type).copied().unwrap_or_default()
    }

    /// Which run is meant and how far it has come.
    async fn locate(&self, shard_id: u32, target: Target) -> Result<(ExecutionId, Status, EventId), Error> {
        match self.call(shard_id, Operation::Locate(target)).await? {
            Answer::Located { execution_id, status, last_event } => Ok((execution_id, status, last_event)),
            other => Err(unexpected(&other)),
        }
    }
}

fn target(workflow: &WorkflowRef) -> Target {
    match workflow {
        WorkflowRef::ByExecution { namespace, execution_id } => Target::ExecutionOf(namespace.clone(), *execution_id),
        WorkflowRef::ByKey { namespace, workflow_type, workflow_id } => {
            Target::Key(BusinessKey { namespace: namespace.clone(), workflow_type: workflow_type.clone(), workflow_id: workflow_id.clone() })
        }
    }
}

fn execution_id(bytes: &[u8]) -> Result<ExecutionId, Error> {
    let uuid = uuid::Uuid::from_slice(bytes).map_err(|_| Error::invalid("execution_id", "execution_id must be 16 bytes"))?;
    ExecutionId::from_uuid(uuid).map_err(|error| Error::invalid("execution_id", error))
}

fn unexpected(answer: &Answer) -> Error {
    Error::internal(format!("the shard answered something else: {answer:?}"))
}

fn request<T>(request: Option<T>) -> Result<T, Error> {
    request.ok_or_else(|| Error::invalid("request", "request is missing"))
}

macro_rules! calls {
    ($($rpc:ident($call:ty) -> $reply:ty = $function:path;)*) => {
        #[tonic::async_trait]
        impl HistoryService for Api {
            $(async fn $rpc(&self, request: Request<$call>) -> Result<Response<$reply>, tonic::Status> {
                Ok(Response::new($function(self, request.into_inner()).await?))
            })*
        }
    };
}

calls! {
    start_workflow(internal::StartWorkflowCall) -> v1::StartWorkflowResponse = start_workflow::start_workflow;
    get_workflow(internal::GetWorkflowCall) -> v1::GetWorkflowResponse = get_workflow::get_workflow;
    get_history(internal::GetHistoryCall) -> v1::GetHistoryResponse = get_history::get_history;
    get_result(internal::GetResultCall) -> v1::GetResultResponse = get_result::get_result;
    signal_workflow(internal::SignalWorkflowCall) -> v1::SignalWorkflowResponse = signal_workflow::signal_workflow;
    query_workflow(internal::QueryWorkflowCall) -> v1::QueryWorkflowResponse = query_workflow::query_workflow;
    cancel_workflow(internal::CancelWorkflowCall) -> v1::CancelWorkflowResponse = end_workflow::cancel_workflow;
    pause_workflow(internal::PauseWorkflowCall) -> v1::PauseWorkflowResponse = pause_workflow::pause_workflow;
    resume_workflow(internal::ResumeWorkflowCall) -> v1::ResumeWorkflowResponse = pause_workflow::resume_workflow;
    terminate_workflow(internal::TerminateWorkflowCall) -> v1::TerminateWorkflowResponse = end_workflow::terminate_workflow;
    complete_workflow_task(internal::CompleteWorkflowTaskCall) -> v1::CompleteWorkflowTaskResponse = workflow_task::complete_workflow_task;
    fail_workflow_task(internal::FailWorkflowTaskCall) -> v1::FailWorkflowTaskResponse = workflow_task::fail_workflow_task;
    close_activity(internal::CloseActivityCall) -> v1::CloseActivityResponse = activity::close_activity;
    heartbeat(internal::HeartbeatCall) -> v1::HeartbeatResponse = activity::heartbeat;
    answer_query(internal::AnswerQueryCall) -> v1::AnswerQueryResponse = query_workflow::answer_query;
    announce(internal::AnnounceCall) -> v1::AnnounceReply = announce::announce;
    take_task(internal::TakeTaskCall) -> internal::TakeTaskReply = take_task::take_task;
    fire_timers(internal::FireTimersCall) -> internal::FireTimersReply = fire_timers::fire_timers;
    deliver_messages(internal::DeliverMessagesCall) -> internal::DeliverMessagesReply = deliver_messages::deliver_messages;
    hand_over(internal::HandOverCall) -> internal::HandOverReply = hand_over::hand_over;
}
