//! A history process that answers as the test says and notes what it was asked.

use harvest_ids::ShardId;
use harvest_proto::internal::v1::history_service_server::{HistoryService, HistoryServiceServer};
use harvest_proto::internal::v1::*;
use harvest_proto::v1;
use harvest_rpc::Error;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tonic::{Request, Response, Status};

/// The run that every start gives.
pub const RUN: &str = "00010000-0000-8000-8000-000000000001";

/// What was called, for which shard, with which request id.
type Call = (&'static str, u32, String);

#[derive(Clone, Default)]
pub struct FakeHistory {
    /// Refusals for the next calls, in order.
    pub refusals: Arc<Mutex<VecDeque<Error>>>,
    /// In order.
    pub calls: Arc<Mutex<Vec<Call>>>,
    pub starts: Arc<Mutex<Vec<v1::StartWorkflowRequest>>>,
    pub signals: Arc<Mutex<Vec<v1::SignalWorkflowRequest>>>,
    pub announcements: Arc<Mutex<Vec<AnnounceCall>>>,
    pub result: Arc<Mutex<v1::GetResultResponse>>,
    /// Tokens of activities that the next answer to a decision brings along.
    pub eager: Arc<Mutex<Vec<bytes::Bytes>>>,
    /// Whether calls hang, as a frozen process's do.
    pub frozen: Arc<Mutex<bool>>,
    pub called: Arc<Notify>,
}

impl FakeHistory {
    pub fn service(&self) -> HistoryServiceServer<Self> {
        HistoryServiceServer::new(self.clone())
    }

    pub fn refuse(&self, errors: impl IntoIterator<Item = Error>) {
        self.refusals.lock().unwrap().extend(errors);
    }

    pub fn calls_of(&self, rpc: &str) -> Vec<(u32, String)> {
        self.calls.lock().unwrap().iter().filter(|(name, ..)| *name == rpc).map(|(_, shard, id)| (*shard, id.clone())).collect()
    }

    /// What a decision leads to.
    fn decided(&self) -> v1::CompleteWorkflowTaskResponse {
        let tokens = std::mem::take(&mut *self.eager.lock().unwrap());
        let eager_activities = tokens.into_iter().map(|task_token| v1::ActivityTask { task_token, ..Default::default() }).collect();
        v1::CompleteWorkflowTaskResponse { eager_activities, ..Default::default() }
    }

    async fn enter(&self, rpc: &'static str, shard_id: u32, request_id: &str) -> Result<(), Status> {
        self.calls.lock().unwrap().push((rpc, shard_id, request_id.to_owned()));
        self.called.notify_waiters();
        if *self.frozen.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        match self.refusals.lock().unwrap().pop_front() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

pub fn not_owned(hint: Option<&str>) -> Error {
    Error::not_owned(ShardId(0), hint)
}

#[tonic::async_trait]
impl HistoryService for FakeHistory {
    async fn start_workflow(&self, request: Request<StartWorkflowCall>) -> Result<Response<v1::StartWorkflowResponse>, Status> {
        let call = request.into_inner();
        let start = call.request.unwrap();
        self.enter("start_workflow", call.shard_id, &start.request_id).await?;
        let fresh = !self.starts.lock().unwrap().iter().any(|earlier| earlier.workflow_id == start.workflow_id);
        self.starts.lock().unwrap().push(start.clone());
        Ok(Response::new(v1::StartWorkflowResponse {
            execution_id: RUN.into(),
            workflow_id: start.workflow_id,
            workflow_type: start.workflow_type,
            state: "RUNNING".into(),
            started_fresh: fresh,
            warnings: Vec::new(),
            eager_workflow_task: (!start.eager_worker_id.is_empty()).then(|| v1::WorkflowTask { first_event_id: 1, ..Default::default() }),
        }))
    }
    async fn get_workflow(&self, request: Request<GetWorkflowCall>) -> Result<Response<v1::GetWorkflowResponse>, Status> {
        self.enter("get_workflow", request.get_ref().shard_id, "").await?;
        let workflow = v1::WorkflowInfo {
            execution_id: RUN.into(),
            workflow_type: "order".into(),
            state: "RUNNING".into(),
            started_at_ms: 1_796_051_640_123,
            ..Default::default()
        };
        Ok(Response::new(v1::GetWorkflowResponse { workflow: Some(workflow) }))
    }
    async fn get_history(&self, request: Request<GetHistoryCall>) -> Result<Response<v1::GetHistoryResponse>, Status> {
        self.enter("get_history", request.get_ref().shard_id, "").await?;
        let output = Some(v1::Payload { data: r#"{"total": 7}"#.into(), encoding: String::new() });
        let kind = Some(v1::event::Kind::WorkflowCompleted(v1::WorkflowCompleted { output }));
        Ok(Response::new(v1::GetHistoryResponse { events: vec![v1::Event { event_id: 9, at_ms: 5, kind }], next_event_id: 10, execution_id: RUN.into() }))
    }
    async fn get_result(&self, request: Request<GetResultCall>) -> Result<Response<v1::GetResultResponse>, Status> {
        self.enter("get_result", request.get_ref().shard_id, "").await?;
        Ok(Response::new(self.result.lock().unwrap().clone()))
    }
    async fn signal_workflow(&self, request: Request<SignalWorkflowCall>) -> Result<Response<v1::SignalWorkflowResponse>, Status> {
        let call = request.into_inner();
        let signal = call.request.unwrap();
        self.enter("signal_workflow", call.shard_id, &signal.request_id).await?;
        self.signals.lock().unwrap().push(signal);
        Ok(Response::new(v1::SignalWorkflowResponse { signal_delivered: true, execution_id: RUN.into() }))
    }
    async fn query_workflow(&self, request: Request<QueryWorkflowCall>) -> Result<Response<v1::QueryWorkflowResponse>, Status> {
        let call = request.into_inner();
        self.enter("query_workflow", call.shard_id, "").await?;
        Ok(Response::new(v1::QueryWorkflowResponse { result: call.request.unwrap().args }))
    }
    async fn cancel_workflow(&self, request: Request<CancelWorkflowCall>) -> Result<Response<v1::CancelWorkflowResponse>, Status> {
        self.enter("cancel_workflow", request.get_ref().shard_id, "").await?;
        Ok(Response::new(v1::CancelWorkflowResponse { execution_id: RUN.into() }))
    }
    async fn terminate_workflow(&self, request: Request<TerminateWorkflowCall>) -> Result<Response<v1::TerminateWorkflowResponse>, Status> {
        self.enter("terminate_workflow", request.get_ref().shard_id, "").await?;
        Ok(Response::new(v1::TerminateWorkflowResponse { execution_id: RUN.into() }))
    }
    async fn pause_workflow(&self, request: Request<PauseWorkflowCall>) -> Result<Response<v1::PauseWorkflowResponse>, Status> {
        self.enter("pause_workflow", request.get_ref().shard_id, "").await?;
        Ok(Response::new(v1::PauseWorkflowResponse { execution_id: RUN.into(), changed: true }))
    }
    async fn resume_workflow(&self, request: Request<ResumeWorkflowCall>) -> Result<Response<v1::ResumeWorkflowResponse>, Status> {
        self.enter("resume_workflow", request.get_ref().shard_id, "").await?;
        Ok(Response::new(v1::ResumeWorkflowResponse { execution_id: RUN.into(), changed: false }))
    }
    async fn complete_workflow_task(&self, request: Request<CompleteWorkflowTaskCall>) -> Result<Response<v1::CompleteWorkflowTaskResponse>, Status> {
        self.enter("complete_workflow_task", request.get_ref().shard_id, "").await?;
        Ok(Response::new(self.decided()))
    }
    async fn fail_workflow_task(&self, request: Request<FailWorkflowTaskCall>) -> Result<Response<v1::FailWorkflowTaskResponse>, Status> {
        self.enter("fail_workflow_task", request.get_ref().shard_id, "").await?;
        Ok(Response::new(v1::FailWorkflowTaskResponse {}))
    }
    async fn close_activity(&self, request: Request<CloseActivityCall>) -> Result<Response<v1::CloseActivityResponse>, Status> {
        self.enter("close_activity", request.get_ref().shard_id, "").await?;
        Ok(Response::new(v1::CloseActivityResponse { decided: Some(self.decided()) }))
    }
    async fn heartbeat(&self, request: Request<HeartbeatCall>) -> Result<Response<v1::HeartbeatResponse>, Status> {
        self.enter("heartbeat", request.get_ref().shard_id, "").await?;
        Ok(Response::new(v1::HeartbeatResponse { cancel_requested: true }))
    }
    async fn answer_query(&self, request: Request<AnswerQueryCall>) -> Result<Response<v1::AnswerQueryResponse>, Status> {
        self.enter("answer_query", request.get_ref().shard_id, "").await?;
        Ok(Response::new(v1::AnswerQueryResponse {}))
    }
    async fn announce(&self, request: Request<AnnounceCall>) -> Result<Response<v1::AnnounceReply>, Status> {
        let call = request.into_inner();
        self.enter("announce", call.shard_id, "").await?;
        // The first attempt of each shard is asked to stop.
        let reply = v1::AnnounceReply { cancel_requested: call.task_tokens.first().cloned().into_iter().collect(), lost: Vec::new() };
        self.announcements.lock().unwrap().push(call);
        Ok(Response::new(reply))
    }
    async fn take_task(&self, _: Request<TakeTaskCall>) -> Result<Response<TakeTaskReply>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }
    async fn fire_timers(&self, _: Request<FireTimersCall>) -> Result<Response<FireTimersReply>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }
    async fn hand_over(&self, _: Request<HandOverCall>) -> Result<Response<HandOverReply>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }
    async fn deliver_messages(&self, _: Request<DeliverMessagesCall>) -> Result<Response<DeliverMessagesReply>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }
}
