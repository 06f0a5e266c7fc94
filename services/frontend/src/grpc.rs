//! gRPC `harvest.v1`, and what the fleet itself asks of a frontend, over the calls in [`crate::api`].

use crate::api;
use crate::edge::Edge;
use crate::session;
use harvest_proto::internal::v1 as internal;
use harvest_proto::internal::v1::frontend_service_server::FrontendService;
use harvest_proto::v1;
use harvest_proto::v1::admin_service_server::AdminService;
use harvest_proto::v1::worker_service_server::WorkerService;
use harvest_proto::v1::workflow_service_server::WorkflowService;
use harvest_rpc::{Error, deadline};
use harvest_runtime::metrics;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// The three public services, and the one for the fleet.
#[derive(Clone)]
pub(crate) struct Grpc {
    pub(crate) edge: Arc<Edge>,
}

impl Grpc {
    /// Counts a call and puts its answer on the wire.
    async fn serve<M, T, F>(
        &self,
        method: &'static str,
        request: Request<M>,
        call: impl FnOnce(Arc<Edge>, M, tokio::time::Instant) -> F,
    ) -> Result<Response<T>, Status>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let options = &self.edge.options;
        let deadline = deadline::of(request.metadata(), options.default_deadline, options.longest_deadline);
        let began = self.edge.clock.monotonic();
        let answer = call(self.edge.clone(), request.into_inner(), deadline).await;
        metrics::RPC_DURATION.record(self.edge.clock.monotonic().saturating_sub(began).as_secs_f64(), [method]);
        metrics::RPC_REQUESTS.add(1, [method, answer.as_ref().map_or_else(|error| error.reason.as_str(), |_| "OK")]);
        match answer {
            Ok(answer) => Ok(Response::new(answer)),
            Err(error) => {
                tracing::debug!(method, %error, "refused");
                Err(error.into())
            }
        }
    }
}

macro_rules! service {
    ($service:ident { $($first:tt)* } $($rpc:ident($request:ident) -> $response:ident;)+) => {
        #[tonic::async_trait]
        impl $service for Grpc {
            $($first)*

            $(async fn $rpc(&self, request: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                self.serve(stringify!($rpc), request, |edge, request, deadline| async move { api::$rpc::$rpc(&edge, request, deadline).await }).await
            })+
        }
    };
}

service! {
    WorkflowService {}
    start_workflow(StartWorkflowRequest) -> StartWorkflowResponse;
    get_workflow(GetWorkflowRequest) -> GetWorkflowResponse;
    list_workflows(ListWorkflowsRequest) -> ListWorkflowsResponse;
    get_history(GetHistoryRequest) -> GetHistoryResponse;
    get_result(GetResultRequest) -> GetResultResponse;
    signal_workflow(SignalWorkflowRequest) -> SignalWorkflowResponse;
    query_workflow(QueryWorkflowRequest) -> QueryWorkflowResponse;
    cancel_workflow(CancelWorkflowRequest) -> CancelWorkflowResponse;
    terminate_workflow(TerminateWorkflowRequest) -> TerminateWorkflowResponse;
    pause_workflow(PauseWorkflowRequest) -> PauseWorkflowResponse;
    resume_workflow(ResumeWorkflowRequest) -> ResumeWorkflowResponse;
}

service! {
    WorkerService {
        type OpenSessionStream = session::Outgoing;

        async fn open_session(&self, request: Request<Streaming<v1::WorkerMessage>>) -> Result<Response<Self::OpenSessionStream>, Status> {
            self.serve("open_session", request, |edge, inbound, _| session::open_session(edge, inbound)).await
        }
    }
    complete_workflow_task(CompleteWorkflowTaskRequest) -> CompleteWorkflowTaskResponse;
    fail_workflow_task(FailWorkflowTaskRequest) -> FailWorkflowTaskResponse;
    close_activity(CloseActivityRequest) -> CloseActivityResponse;
    heartbeat(HeartbeatRequest) -> HeartbeatResponse;
    answer_query(AnswerQueryRequest) -> AnswerQueryResponse;
}

service! {
    AdminService {}
    list_workers(ListWorkersRequest) -> ListWorkersResponse;
    list_shards(ListShardsRequest) -> ListShardsResponse;
    get_fleet_limits(GetFleetLimitsRequest) -> GetFleetLimitsResponse;
    patch_fleet_limits(PatchFleetLimitsRequest) -> PatchFleetLimitsResponse;
}

#[tonic::async_trait]
impl FrontendService for Grpc {
    async fn reannounce(&self, request: Request<internal::ReannounceCall>) -> Result<Response<internal::ReannounceReply>, Status> {
        self.serve("reannounce", request, |edge, call, deadline| async move { api::reannounce::reannounce(&edge, call, deadline).await }).await
    }
}
