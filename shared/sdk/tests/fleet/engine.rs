//! The runs, the sessions, and what is due.

use bytes::Bytes;
use harvest_ids::*;
use harvest_proto::v1::{self, AnnounceReply, ServerMessage, server_message::Message as ToWorker};
use harvest_wire::{event, failure, payload, token};
use harvest_workflow_core::decide::decide;
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::defaults::Types;
use harvest_workflow_core::event::{Event, WorkflowStarted};
use harvest_workflow_core::input::{Carried, Env, Input, TaskToken};
use harvest_workflow_core::limits::Limits;
use harvest_workflow_core::message::{Message, MessageBody};
use harvest_workflow_core::payload::Payload;
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::record::{Dispatch, Record};
use harvest_workflow_core::state::{Outcome, State};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{Notify, mpsc, oneshot};
use tonic::Status;

/// What goes wrong on purpose.
#[derive(Default)]
pub struct Faults {
    /// So many answers to completed workflow tasks are lost after they were recorded.
    pub lose_decision_replies: u32,
    /// Activity tasks go over the stream twice.
    pub repeat_activities: bool,
    /// Always the full history, as if nobody had the run cached.
    pub never_sticky: bool,
    /// Announcements are not answered.
    pub mute_announcements: bool,
    /// How long new sessions are told that attempts may go on without an answer; long by default, because nobody here misses an attempt that its
    /// worker has aborted.
    pub announce_timeout_ms: Option<u64>,
    /// Attempts that an announcement is told are lost or to cancel.
    pub tell_lost: bool,
    /// Page size of GetHistory.
    pub history_page: Option<usize>,
    /// Answers to decisions bring no activities.
    pub never_eager: bool,
    /// So many answers to ended activities are lost after they were recorded.
    pub lose_close_replies: u32,
    /// Before so many results with a decision ahead are recorded, a signal is.
    pub signals_before_ahead: u32,
    /// So many answers to starts are lost after they were recorded.
    pub lose_start_replies: u32,
    /// Answers to starts wait until this is told.
    pub hold_start_replies: Option<Arc<Notify>>,
}

/// What has happened.
#[derive(Default)]
pub struct Counts {
    /// Workflow tasks that went over a stream.
    pub workflow_tasks: u32,
    /// Activity tasks that went over a stream.
    pub streamed_activities: u32,
    /// Commands that workers wanted to have in the answer.
    pub eager_wanted: usize,
    /// Activities that answers brought, repetitions not counted.
    pub eager_given: usize,
    /// Answers that were given a second time.
    pub repeated: u32,
    /// Decisions ahead that came.
    pub ahead_sent: u32,
    /// Those that were taken.
    pub ahead_taken: u32,
    /// Starts that asked for their first workflow task.
    pub eager_starts_asked: u32,
    /// Those that brought it, repetitions not counted.
    pub eager_starts_given: u32,
    /// Most attempts that one worker had at a time.
    pub most_running: usize,
}

pub struct RunRecord {
    pub state: State,
    pub events: Vec<Event>,
    pub last_worker: String,
}

pub struct Session {
    pub id: String,
    pub sender: mpsc::Sender<Result<ServerMessage, Status>>,
    pub workflow_credit: u32,
    pub activity_credit: u32,
    pub draining: bool,
}

#[derive(Default)]
pub struct Engine {
    pub runs: BTreeMap<ExecutionId, RunRecord>,
    pub sessions: Vec<Session>,
    pub queries: HashMap<Bytes, oneshot::Sender<v1::AnswerQueryRequest>>,
    pub faults: Faults,
    pub sequence: u64,
    pub history_reads: u32,
    pub announced: usize,
    pub released: u32,
    pub seen_hello: Vec<v1::Hello>,
    pub counts: Counts,
    /// What answers with activities said, by the token that they answered.
    pub given: HashMap<Bytes, v1::CompleteWorkflowTaskResponse>,
    limits: Limits,
}

pub fn now() -> Timestamp {
    Timestamp::from_millis(i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap())
}

impl Engine {
    pub fn start(&mut self, started: WorkflowStarted, carried: Carried) -> ExecutionId {
        let id = started.execution_id;
        self.runs.insert(id, RunRecord { state: State::empty(), events: Vec::new(), last_worker: String::new() });
        self.input(id, &Input::Start { started: Box::new(started), carried }).unwrap();
        id
    }

    pub fn new_id(&mut self, workflow_id: &WorkflowId) -> ExecutionId {
        self.sequence += 1;
        ExecutionId::new(Slot::of(&Namespace::default(), workflow_id), now(), self.sequence)
    }

    pub fn input(&mut self, id: ExecutionId, input: &Input) -> Result<Reply, Reject> {
        self.input_at(id, input, now())
    }

    pub fn input_at(&mut self, id: ExecutionId, input: &Input, now: Timestamp) -> Result<Reply, Reject> {
        self.sequence += 1;
        let random = self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let env = Env { now, random, limits: &self.limits, config_version: (0, 0), types: &Types::default() };
        let run = self.runs.get_mut(&id).ok_or(Reject::NotFound)?;
        let decision = decide(&mut run.state, input, &env)?;
        run.events.extend(decision.records.into_iter().filter_map(|record| match record {
            Record::Event(event) => Some(event),
            Record::Control(_) => None,
        }));
        if let Some(successor) = decision.successor {
            self.start(successor.started, successor.carried);
        }
        for message in decision.messages {
            self.deliver(message);
        }
        Ok(decision.reply)
    }

    fn deliver(&mut self, message: Message) {
        match &message.body {
            MessageBody::StartChild { namespace, child, parent, workflow_task_timeout } => {
                self.start(
                    WorkflowStarted {
                        namespace: namespace.clone(),
                        workflow_type: child.workflow_type.clone(),
                        workflow_id: child.workflow_id.clone(),
                        execution_id: child.execution_id,
                        first_execution_id: child.execution_id,
                        continued_from: None,
                        parent: Some(parent.clone()),
                        task_queue: child.task_queue.clone(),
                        input: child.input.clone(),
                        request_id: None,
                        execution_timeout: child.execution_timeout,
                        workflow_task_timeout: *workflow_task_timeout,
                        chain_execution_timeout: None,
                        chain_deadline: None,
                        sla: None,
                        config_version: (0, 0),
                    },
                    Carried::default(),
                );
            }
            MessageBody::ChildStartRefused { .. } | MessageBody::ChildClosed { .. } | MessageBody::CancelChild { .. } => {
                let target = message.target;
                // A refusal is an answer, and nobody asks here.
                let _answered = self.input(target, &Input::Message(Box::new(message)));
            }
        }
    }

    pub fn events(&self, execution_id: &str) -> Vec<Event> {
        self.runs[&execution_id.parse().unwrap()].events.clone()
    }

    /// The last run of the chain that a reference names.
    pub fn resolve(&self, reference: Option<v1::WorkflowRef>) -> Result<ExecutionId, Status> {
        let reference = reference.unwrap_or_default();
        let found = if reference.execution_id.is_empty() {
            let named = |run: &&RunRecord| {
                run.state.started().is_some_and(|it| it.workflow_id.as_str() == reference.workflow_id && it.workflow_type.as_str() == reference.workflow_type)
            };
            self.runs.values().find(named).map(|run| run.state.started().unwrap().execution_id)
        } else {
            reference.execution_id.parse().ok().filter(|id| self.runs.contains_key(id))
        };
        found.ok_or_else(|| Status::not_found("no such run"))
    }

    pub fn end_of_chain(&self, mut id: ExecutionId) -> ExecutionId {
        while let Some(next) = self.runs[&id].state.continued_as() {
            id = next;
        }
        id
    }

    pub fn wake_due(&mut self) {
        let due: Vec<_> = self.runs.iter().filter(|(_, run)| run.state.projection().due_at.is_some_and(|at| at <= now())).map(|(id, _)| *id).collect();
        for id in due {
            self.input(id, &Input::Wake).unwrap();
        }
    }

    /// Gives ready tasks to sessions with credit.
    pub fn dispatch(&mut self) {
        self.sessions.retain(|session| !session.sender.is_closed());
        let mut ready = Vec::new();
        for (id, run) in &self.runs {
            ready.extend(run.state.projection().tasks.into_iter().filter(|(_, task)| task.started.is_none()).map(|(key, _)| (*id, key)));
        }
        for (id, key) in ready {
            self.dispatch_one(id, key);
        }
        self.count_running();
    }

    fn count_running(&mut self) {
        let mut running: BTreeMap<WorkerId, usize> = BTreeMap::new();
        for (key, task) in self.runs.values().flat_map(|run| run.state.projection().tasks) {
            if let (TaskKey::Activity(_), Some(dispatch)) = (key, task.started) {
                *running.entry(dispatch.worker_id).or_default() += 1;
            }
        }
        self.counts.most_running = self.counts.most_running.max(running.into_values().max().unwrap_or_default());
    }

    pub fn new_dispatch(&mut self, worker_id: &WorkerId) -> Dispatch {
        self.sequence += 1;
        Dispatch { epoch: Epoch(1), sequence: self.sequence, worker_id: worker_id.clone() }
    }

    fn dispatch_one(&mut self, id: ExecutionId, key: TaskKey) {
        let is_workflow = key == TaskKey::Workflow;
        let last_worker = self.runs[&id].last_worker.clone();
        let has_room = |session: &Session| !session.draining && if is_workflow { session.workflow_credit > 0 } else { session.activity_credit > 0 };
        let sticky = self.sessions.iter().position(|session| session.id == last_worker && has_room(session));
        let Some(index) = sticky.or_else(|| self.sessions.iter().position(has_room)) else { return };
        let (worker_id, sender) = (self.sessions[index].id.clone(), self.sessions[index].sender.clone());
        let dispatch = self.new_dispatch(&WorkerId::new(&worker_id).unwrap());
        let message = match key {
            TaskKey::Workflow => self.workflow_task(id, dispatch, worker_id == last_worker).map(ToWorker::WorkflowTask),
            TaskKey::Activity(activity_id) => self.activity_task(id, activity_id, dispatch).map(ToWorker::ActivityTask),
        };
        let Some(message) = message else { return };
        let credit = &mut self.sessions[index];
        if is_workflow {
            credit.workflow_credit -= 1;
            self.counts.workflow_tasks += 1;
        } else {
            credit.activity_credit -= 1;
            self.counts.streamed_activities += 1;
        }
        if is_workflow {
            self.runs.get_mut(&id).unwrap().last_worker = worker_id;
        }
        // A stream that is gone loses the task: it times out or is lost, as in a real fleet.
        let repeated = self.faults.repeat_activities && !is_workflow;
        for message in std::iter::repeat_n(message, if repeated { 2 } else { 1 }) {
            let _gone = sender.try_send(Ok(ServerMessage { message: Some(message) }));
        }
    }

    pub fn workflow_task(&mut self, id: ExecutionId, dispatch: Dispatch, cached: bool) -> Option<v1::WorkflowTask> {
        let reply = self.input(id, &Input::StartWorkflowTask { dispatch: dispatch.clone() }).ok()?;
        let Reply::WorkflowTask { attempt, last_event, previous_decision, timeout } = reply else { return None };
        let from = if cached && attempt == Attempt::FIRST && !self.faults.never_sticky { previous_decision.next() } else { EventId(1) };
        let token = TaskToken { execution_id: id, activity_id: None, attempt, dispatch };
        Some(self.taken_workflow_task(token, from, last_event, timeout))
    }

    pub fn taken_workflow_task(&self, token: TaskToken, from: EventId, to: EventId, timeout: DurationMs) -> v1::WorkflowTask {
        let id = token.execution_id;
        v1::WorkflowTask {
            task_token: token::encode(&token),
            workflow: Some(self.info(id)),
            events: self.runs[&id].events.iter().filter(|event| event.id >= from && event.id <= to).map(event::to_proto).collect(),
            first_event_id: from.0,
            last_event_id: to.0,
            attempt: token.attempt.0,
            timeout_ms: timeout.as_millis(),
            started_at_ms: 0,
        }
    }

    pub fn activity_task(&mut self, id: ExecutionId, activity_id: ActivityId, dispatch: Dispatch) -> Option<v1::ActivityTask> {
        let reply = self.input(id, &Input::StartActivity { activity_id, dispatch: dispatch.clone() }).ok()?;
        let Reply::ActivityTask { attempt, .. } = reply else { return None };
        let activity = self.runs[&id].state.activity(activity_id).unwrap();
        let spec = activity.spec();
        let token = TaskToken { execution_id: id, activity_id: Some(activity_id), attempt, dispatch };
        let millis = |span: Option<DurationMs>| span.map_or(0, DurationMs::as_millis);
        Some(v1::ActivityTask {
            task_token: token::encode(&token),
            workflow: Some(self.info(id)),
            activity_id: activity_id.0,
            activity_type: spec.activity_type.to_string(),
            input: Some(payload::to_proto(&spec.input)),
            attempt: attempt.0,
            max_attempts: spec.retry.max_attempts,
            heartbeat_details: activity.heartbeat_details().map(payload::to_proto),
            start_to_close_ms: millis(spec.start_to_close),
            heartbeat_timeout_ms: millis(spec.heartbeat_timeout),
            task_queue: spec.task_queue.to_string(),
            previous_failure: activity.last_failure().map(failure::to_proto),
            started_at_ms: self.runs[&id].state.last_record_at().as_millis(),
            schedule_to_close_left_ms: 0,
        })
    }

    pub fn info(&self, id: ExecutionId) -> v1::WorkflowInfo {
        let state = &self.runs[&id].state;
        let started = state.started().unwrap();
        v1::WorkflowInfo {
            namespace: started.namespace.to_string(),
            workflow_type: started.workflow_type.to_string(),
            workflow_id: started.workflow_id.to_string(),
            execution_id: id.to_string(),
            state: state.status().to_string(),
            task_queue: started.task_queue.to_string(),
            history_events: state.last_event_id().0,
            ..v1::WorkflowInfo::default()
        }
    }

    pub fn result(&self, id: ExecutionId) -> Option<v1::GetResultResponse> {
        let id = self.end_of_chain(id);
        let state = &self.runs[&id].state;
        let outcome = state.outcome()?;
        let reason = |message: &str| Some(v1::Failure { message: message.to_owned(), ..v1::Failure::default() });
        let (output, failure): (Option<&Payload>, _) = match outcome {
            Outcome::Completed { output } => (Some(output), None),
            Outcome::Failed { failure } => (None, Some(failure::to_proto(failure))),
            Outcome::Cancelled { reason: text } | Outcome::Terminated { reason: text } => (None, reason(text)),
            Outcome::TimedOut { .. } => (None, reason("execution timeout")),
            Outcome::ContinuedAsNew { .. } => return None,
        };
        let output = output.map(payload::to_proto);
        Some(v1::GetResultResponse { state: state.status().to_string(), execution_id: id.to_string(), output, failure, closed_at_ms: 1 })
    }

    /// What an announcement is answered.
    pub fn announce(&mut self, session: &str, tokens: Vec<Bytes>) {
        self.announced += tokens.len();
        if self.faults.mute_announcements {
            return;
        }
        let mut answer = AnnounceReply::default();
        for bytes in tokens {
            let token = token::decode(&bytes).unwrap();
            let input = Input::AnnounceActivity { worker_id: token.dispatch.worker_id.clone(), token: token.clone() };
            match self.input(token.execution_id, &input) {
                Ok(Reply::Progress { cancel_requested: true }) => answer.cancel_requested.push(bytes),
                Ok(_) if !self.faults.tell_lost => {}
                Ok(_) | Err(_) => answer.lost.push(bytes),
            }
        }
        if let Some(session) = self.sessions.iter().find(|it| it.id == session) {
            let _gone = session.sender.try_send(Ok(ServerMessage { message: Some(ToWorker::AnnounceReply(answer)) }));
        }
    }

    pub fn open_types(&self) -> BTreeSet<String> {
        self.runs.values().filter(|run| run.state.is_open()).map(|run| run.state.started().unwrap().workflow_type.to_string()).collect()
    }
}
