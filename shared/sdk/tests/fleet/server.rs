//! The public services over the engine.

use super::engine::{Engine, Session};
use harvest_ids::*;
use harvest_proto::v1::worker_service_server::WorkerService;
use harvest_proto::v1::workflow_service_server::WorkflowService;
use harvest_proto::v1::*;
use harvest_rpc::{Error, Reason};
use harvest_wire::{event, payload, worker};
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::event::WorkflowStarted;
use harvest_workflow_core::input::{ActivityOutcome, Carried, Input};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

#[derive(Clone)]
pub struct Services {
    pub engine: Arc<Mutex<Engine>>,
    pub changed: Arc<Notify>,
}

type Answer<T> = Result<Response<T>, Status>;

fn refused(reject: &Reject) -> Status {
    let reason = match reject {
        Reject::Closed { .. } => Reason::WorkflowClosed,
        Reject::AlreadyStarted => Reason::AlreadyRunning,
        Reject::StaleTask { .. } | Reject::NotPending => Reason::StaleTask,
        Reject::BadCommand { .. } | Reject::BadDecision { .. } => Reason::BadDecision,
        Reject::Limit { .. } => Reason::LimitReached,
        Reject::NotFound => Reason::WorkflowNotFound,
    };
    Error::new(reason, reject.to_string()).into()
}

fn malformed(error: impl ToString) -> Status {
    Error::new(Reason::InvalidArgument, error.to_string()).into()
}

impl Services {
    /// Does something to the engine, then gives out what became ready.
    pub fn act<T>(&self, action: impl FnOnce(&mut Engine) -> T) -> T {
        let done = {
            let mut engine = self.engine.lock().unwrap();
            let done = action(&mut engine);
            engine.dispatch();
            done
        };
        self.changed.notify_waiters();
        done
    }

    fn input(&self, id: ExecutionId, input: &Input) -> Result<Reply, Status> {
        self.act(|engine| engine.input(id, input)).map_err(|reject| refused(&reject))
    }
}

#[tonic::async_trait]
impl WorkerService for Services {
    type OpenSessionStream = ReceiverStream<Result<ServerMessage, Status>>;

    async fn open_session(&self, request: Request<Streaming<WorkerMessage>>) -> Answer<Self::OpenSessionStream> {
        let mut stream = request.into_inner();
        let (sender, receiver) = mpsc::channel(1_000);
        let services = self.clone();
        tokio::spawn(async move {
            let mut session = String::new();
            while let Ok(Some(message)) = stream.message().await {
                services.act(|engine| on_message(engine, &mut session, message, &sender));
            }
            services.act(|engine| engine.sessions.retain(|it| it.id != session || !it.sender.same_channel(&sender)));
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn complete_workflow_task(&self, request: Request<CompleteWorkflowTaskRequest>) -> Answer<CompleteWorkflowTaskResponse> {
        let decided = worker::complete_workflow_task(request.into_inner()).map_err(malformed)?;
        let decision = decided.decision.map_err(malformed)?;
        let answer = self.act(|engine| engine.complete(decision, &decided.eager_commands)).map_err(|reject| refused(&reject))?;
        let mut engine = self.engine.lock().unwrap();
        if engine.faults.lose_decision_replies > 0 {
            engine.faults.lose_decision_replies -= 1;
            return Err(Status::unavailable("the answer was lost"));
        }
        Ok(Response::new(answer))
    }

    async fn fail_workflow_task(&self, request: Request<FailWorkflowTaskRequest>) -> Answer<FailWorkflowTaskResponse> {
        let (token, worker_id, cause) = worker::fail_workflow_task(request.into_inner()).map_err(malformed)?;
        self.input(token.execution_id, &Input::FailWorkflowTask { token, worker_id, cause })?;
        Ok(Response::new(FailWorkflowTaskResponse {}))
    }

    async fn close_activity(&self, request: Request<CloseActivityRequest>) -> Answer<CloseActivityResponse> {
        let closed = worker::close_activity(request.into_inner()).map_err(malformed)?;
        let released = u32::from(closed.outcome == ActivityOutcome::Released);
        let decided = self.act(|engine| {
            engine.released += released;
            engine.close(closed)
        });
        let decided = decided.map_err(|reject| refused(&reject))?;
        let mut engine = self.engine.lock().unwrap();
        if engine.faults.lose_close_replies > 0 {
            engine.faults.lose_close_replies -= 1;
            return Err(Status::unavailable("the answer was lost"));
        }
        Ok(Response::new(CloseActivityResponse { decided }))
    }

    async fn heartbeat(&self, request: Request<HeartbeatRequest>) -> Answer<HeartbeatResponse> {
        let (token, worker_id, details) = worker::heartbeat(request.into_inner()).map_err(malformed)?;
        let reply = self.input(token.execution_id, &Input::Heartbeat { token, worker_id, details })?;
        Ok(Response::new(HeartbeatResponse { cancel_requested: reply == Reply::Progress { cancel_requested: true } }))
    }

    async fn answer_query(&self, request: Request<AnswerQueryRequest>) -> Answer<AnswerQueryResponse> {
        let request = request.into_inner();
        if let Some(waiting) = self.engine.lock().unwrap().queries.remove(&request.query_token) {
            let _gone = waiting.send(request);
        }
        Ok(Response::new(AnswerQueryResponse {}))
    }
}

fn on_message(engine: &mut Engine, session: &mut String, message: WorkerMessage, sender: &mpsc::Sender<Result<ServerMessage, Status>>) {
    use server_message::Message as ToWorker;
    use worker_message::Message as FromWorker;
    match message.message {
        Some(FromWorker::Hello(hello)) => {
            *session = if hello.resume_worker_id.is_empty() { format!("worker-{}", engine.seen_hello.len()) } else { hello.resume_worker_id.clone() };
            engine.seen_hello.push(hello);
            engine.sessions.retain(|it| it.id != *session);
            let welcome =
                Welcome { worker_id: session.clone(), announce_interval_ms: 50, announce_timeout_ms: engine.faults.announce_timeout_ms.unwrap_or(10_000) };
            let _gone = sender.try_send(Ok(ServerMessage { message: Some(ToWorker::Welcome(welcome)) }));
            let (id, sender) = (session.clone(), sender.clone());
            engine.sessions.push(Session { id, sender, workflow_credit: 0, activity_credit: 0, draining: false });
        }
        Some(FromWorker::Credit(credit)) => {
            if let Some(it) = engine.sessions.iter_mut().find(|it| it.id == *session) {
                it.workflow_credit += credit.workflow_tasks;
                it.activity_credit += credit.activity_tasks;
            }
        }
        Some(FromWorker::Announce(announce)) => engine.announce(session, announce.task_tokens),
        Some(FromWorker::Drain(_)) => {
            if let Some(it) = engine.sessions.iter_mut().find(|it| it.id == *session) {
                it.draining = true;
                let _gone = it.sender.try_send(Ok(ServerMessage { message: Some(ToWorker::Drained(Drained {})) }));
            }
        }
        None => {}
    }
}

#[tonic::async_trait]
impl WorkflowService for Services {
    async fn start_workflow(&self, request: Request<StartWorkflowRequest>) -> Answer<StartWorkflowResponse> {
        let mut it = request.into_inner();
        let workflow_id = WorkflowId::new(&it.workflow_id).map_err(malformed)?;
        let input = payload::or_null("input", it.input.take()).map_err(malformed)?;
        let request_id = it.request_id.clone();
        let answer = self.act(|engine| {
            let reference = WorkflowRef { workflow_type: it.workflow_type.clone(), workflow_id: it.workflow_id.clone(), ..WorkflowRef::default() };
            let open = engine.resolve(Some(reference)).ok().map(|id| engine.end_of_chain(id)).filter(|id| engine.runs[id].state.is_open());
            if open.is_some() && it.conflict_policy() == ConflictPolicy::Fail {
                return Err(Status::from(Error::new(Reason::AlreadyRunning, "it is open")));
            }
            let is_repeated = |id| engine.runs[&id].state.started().and_then(|started| started.request_id.as_ref()).is_some_and(|it| it.as_str() == request_id);
            let fresh = open.is_none_or(is_repeated);
            let id = open.unwrap_or_else(|| {
                let execution_id = engine.new_id(&workflow_id);
                let started = WorkflowStarted {
                    namespace: Namespace::default(),
                    workflow_type: WorkflowType::new(&it.workflow_type).unwrap(),
                    workflow_id: workflow_id.clone(),
                    execution_id,
                    first_execution_id: execution_id,
                    continued_from: None,
                    parent: None,
                    task_queue: if it.task_queue.is_empty() { TaskQueue::default() } else { TaskQueue::new(&it.task_queue).unwrap() },
                    input,
                    request_id: RequestId::new(&it.request_id).ok(),
                    execution_timeout: it.execution_timeout_ms.map(|millis| DurationMs::new("t", millis).unwrap()),
                    workflow_task_timeout: DurationMs::from_millis_const(10_000),
                    chain_execution_timeout: None,
                    chain_deadline: None,
                    sla: None,
                    config_version: (0, 0),
                };
                engine.start(started, Carried::default())
            });
            let task = if fresh { engine.first_task(id, &it.eager_worker_id) } else { None };
            Ok((engine.info(id), fresh, task))
        });
        let (info, started_fresh, eager_workflow_task) = answer?;
        let gate = self.engine.lock().unwrap().faults.hold_start_replies.clone();
        if let Some(gate) = gate {
            gate.notified().await;
        }
        {
            let faults = &mut self.engine.lock().unwrap().faults;
            if faults.lose_start_replies > 0 {
                faults.lose_start_replies -= 1;
                return Err(Status::unavailable("the answer was lost"));
            }
        }
        let WorkflowInfo { execution_id, workflow_id, workflow_type, state, .. } = info;
        let warnings = Vec::new();
        Ok(Response::new(StartWorkflowResponse { execution_id, workflow_id, workflow_type, state, started_fresh, warnings, eager_workflow_task }))
    }

    async fn get_workflow(&self, request: Request<GetWorkflowRequest>) -> Answer<GetWorkflowResponse> {
        let engine = self.engine.lock().unwrap();
        let id = engine.resolve(request.into_inner().workflow)?;
        Ok(Response::new(GetWorkflowResponse { workflow: Some(engine.info(id)) }))
    }

    async fn list_workflows(&self, _request: Request<ListWorkflowsRequest>) -> Answer<ListWorkflowsResponse> {
        Err(Status::unimplemented("not here"))
    }

    async fn get_history(&self, request: Request<GetHistoryRequest>) -> Answer<GetHistoryResponse> {
        let it = request.into_inner();
        let mut engine = self.engine.lock().unwrap();
        engine.history_reads += 1;
        let id = engine.resolve(it.workflow)?;
        let page = usize::try_from(it.page_size).unwrap().min(engine.faults.history_page.unwrap_or(usize::MAX));
        let from = it.from_event_id.max(1);
        let run = &engine.runs[&id];
        let events: Vec<_> = run.events.iter().filter(|event| event.id.0 >= from).take(page).map(event::to_proto).collect();
        let next = from + u64::try_from(events.len()).unwrap();
        let next_event_id = if next > run.state.last_event_id().0 { 0 } else { next };
        Ok(Response::new(GetHistoryResponse { events, next_event_id, execution_id: id.to_string() }))
    }

    async fn get_result(&self, request: Request<GetResultRequest>) -> Answer<GetResultResponse> {
        let it = request.into_inner();
        let id = self.engine.lock().unwrap().resolve(it.workflow)?;
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if let Some(result) = self.engine.lock().unwrap().result(id) {
                    return result;
                }
                changed.await;
            }
        };
        let running = GetResultResponse { state: "RUNNING".to_owned(), ..GetResultResponse::default() };
        Ok(Response::new(tokio::time::timeout(Duration::from_millis(it.wait_ms), waiting).await.unwrap_or(running)))
    }

    async fn signal_workflow(&self, request: Request<SignalWorkflowRequest>) -> Answer<SignalWorkflowResponse> {
        let it = request.into_inner();
        let id = {
            let engine = self.engine.lock().unwrap();
            engine.end_of_chain(engine.resolve(it.workflow)?)
        };
        let input = Input::Signal {
            name: SignalName::new(&it.signal_name).map_err(malformed)?,
            payload: payload::or_null("payload", it.payload).map_err(malformed)?,
            request_id: RequestId::new(&it.request_id).ok(),
        };
        let reply = self.input(id, &input)?;
        Ok(Response::new(SignalWorkflowResponse { signal_delivered: reply != Reply::Duplicate, execution_id: id.to_string() }))
    }

    async fn query_workflow(&self, request: Request<QueryWorkflowRequest>) -> Answer<QueryWorkflowResponse> {
        let it = request.into_inner();
        let (answered, answer) = oneshot::channel();
        {
            let mut engine = self.engine.lock().unwrap();
            let id = engine.resolve(it.workflow)?;
            engine.sequence += 1;
            let query_token = bytes::Bytes::from(engine.sequence.to_string());
            engine.queries.insert(query_token.clone(), answered);
            let last_event_id = engine.runs[&id].state.last_event_id().0;
            let workflow = Some(engine.info(id));
            let task = QueryTask { query_token, workflow, query_name: it.query_name, args: it.args, last_event_id };
            let session =
                engine.sessions.iter().find(|it| it.workflow_credit > 0).ok_or_else(|| Status::from(Error::new(Reason::QueryTimeout, "no worker")))?;
            let _gone = session.sender.try_send(Ok(ServerMessage { message: Some(server_message::Message::QueryTask(task)) }));
        }
        let answer = tokio::time::timeout(Duration::from_secs(5), answer).await.map_err(|_| Status::from(Error::new(Reason::QueryTimeout, "no answer")))?;
        match worker::query_outcome(answer.map_err(|_| Status::unavailable("gone"))?.outcome).map_err(malformed)? {
            Ok(result) => Ok(Response::new(QueryWorkflowResponse { result: Some(payload::to_proto(&result)) })),
            Err(failure) if failure.error_type == "UnknownQuery" => Err(Error::new(Reason::UnknownQuery, failure.message).into()),
            Err(failure) => Err(Error::new(Reason::QueryFailed, format!("{}: {}", failure.error_type, failure.message)).into()),
        }
    }

    async fn cancel_workflow(&self, request: Request<CancelWorkflowRequest>) -> Answer<CancelWorkflowResponse> {
        let it = request.into_inner();
        let id = self.engine.lock().unwrap().resolve(it.workflow)?;
        self.input(id, &Input::RequestCancel { reason: it.reason, request_id: RequestId::new(&it.request_id).ok() })?;
        Ok(Response::new(CancelWorkflowResponse { execution_id: id.to_string() }))
    }

    async fn terminate_workflow(&self, request: Request<TerminateWorkflowRequest>) -> Answer<TerminateWorkflowResponse> {
        let it = request.into_inner();
        let id = self.engine.lock().unwrap().resolve(it.workflow)?;
        self.input(id, &Input::Terminate { reason: it.reason, request_id: RequestId::new(&it.request_id).ok() })?;
        Ok(Response::new(TerminateWorkflowResponse { execution_id: id.to_string() }))
    }

    async fn pause_workflow(&self, request: Request<PauseWorkflowRequest>) -> Answer<PauseWorkflowResponse> {
        let it = request.into_inner();
        let id = self.engine.lock().unwrap().resolve(it.workflow)?;
        let request_id = RequestId::new(&it.request_id).ok();
        self.input(id, &Input::Pause { longest: it.longest_ms.map(DurationMs::from_millis_const), reason: it.reason, request_id })?;
        Ok(Response::new(PauseWorkflowResponse { execution_id: id.to_string(), changed: true }))
    }

    async fn resume_workflow(&self, request: Request<ResumeWorkflowRequest>) -> Answer<ResumeWorkflowResponse> {
        let it = request.into_inner();
        let id = self.engine.lock().unwrap().resolve(it.workflow)?;
        self.input(id, &Input::Resume { request_id: RequestId::new(&it.request_id).ok() })?;
        Ok(Response::new(ResumeWorkflowResponse { execution_id: id.to_string(), changed: true }))
    }
}
