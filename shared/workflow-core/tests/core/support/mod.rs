//! A run under test: its state, its log, and a clock that only moves when told to.

pub mod steps;
pub mod world;

use harvest_ids::*;
use harvest_workflow_core::command::*;
use harvest_workflow_core::decision::{Decision, Reject, Reply};
use harvest_workflow_core::defaults::Types;
use harvest_workflow_core::event::{EventKind, WorkflowStarted};
use harvest_workflow_core::input::*;
use harvest_workflow_core::limits::Limits;
use harvest_workflow_core::message::{Message, MessageBody};
use harvest_workflow_core::oracle;
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::projection::{Projection, TaskKey, touched};
use harvest_workflow_core::record::{Control, Dispatch, Record, WorkflowTaskFailure};
use harvest_workflow_core::retry::RetryPolicy;
use harvest_workflow_core::{State, decide};

/// Where the clock of a test starts.
pub const EPOCH_MS: i64 = 1_796_000_000_000;

pub struct Run {
    pub state: State,
    pub log: Vec<Record>,
    pub now: i64,
    pub random: u64,
    pub limits: Limits,
    pub epoch: u64,
    /// What attributes say.
    pub types: Types,
    pub sequence: u64,
}

pub fn ms(millis: u64) -> DurationMs {
    DurationMs::new("test", millis).unwrap()
}

pub fn worker(number: u64) -> WorkerId {
    WorkerId::new(format!("worker-{number}")).unwrap()
}

pub fn request(number: u64) -> RequestId {
    RequestId::new(format!("request-{number}")).unwrap()
}

pub fn payload(text: &str) -> Payload {
    Payload::json(text.to_owned())
}

pub fn started(id: &str) -> WorkflowStarted {
    let (namespace, workflow_id) = (Namespace::default(), WorkflowId::new(id).unwrap());
    let execution_id = ExecutionId::new(Slot::of(&namespace, &workflow_id), Timestamp::from_millis(EPOCH_MS), 7);
    WorkflowStarted {
        namespace,
        workflow_type: WorkflowType::new("order").unwrap(),
        workflow_id,
        execution_id,
        first_execution_id: execution_id,
        continued_from: None,
        parent: None,
        task_queue: TaskQueue::default(),
        input: payload("{}"),
        request_id: Some(request(0)),
        execution_timeout: None,
        workflow_task_timeout: ms(10_000),
        chain_execution_timeout: None,
        chain_deadline: None,
        sla: None,
        config_version: (1, 1),
    }
}

pub fn activity(retry: RetryPolicy) -> ScheduleActivity {
    ScheduleActivity {
        activity_type: ActivityType::new("charge").unwrap(),
        input: payload("{}"),
        options: ActivityOptions { retry: Some(retry), ..ActivityOptions::default() },
        attribute: ActivityOptions::default(),
        floor: ActivityOptions::default(),
    }
}

pub fn schedule(attempts: u32) -> Command {
    Command::ScheduleActivity(Box::new(activity(RetryPolicy::fixed(attempts, ms(1_000)))))
}

pub fn timer(millis: u64) -> Command {
    Command::StartTimer { timer_id: TimerName::new("wait").unwrap(), duration: ms(millis) }
}

pub fn child(id: &str, detached: bool) -> Command {
    Command::StartChildWorkflow(StartChildWorkflow {
        workflow_type: WorkflowType::new("ship").unwrap(),
        workflow_id: WorkflowId::new(id).unwrap(),
        task_queue: None,
        input: payload("1"),
        execution_timeout: None,
        detached,
    })
}

pub fn complete() -> Command {
    Command::CompleteWorkflow { output: payload("\"done\"") }
}

pub fn continue_as_new() -> Command {
    Command::ContinueAsNew { input: payload("2"), workflow_type: None, task_queue: None }
}

pub fn failure(error_type: &str) -> Failure {
    Failure::engine(error_type, "for a test")
}

impl Run {
    /// A run that does not exist yet.
    pub fn new() -> Self {
        Self { state: State::empty(), log: Vec::new(), now: EPOCH_MS, random: 1, limits: Limits::default(), epoch: 1, types: Types::default(), sequence: 0 }
    }

    /// A started run.
    pub fn started() -> Self {
        Self::started_with(started("order-1"))
    }

    pub fn started_with(started: WorkflowStarted) -> Self {
        let mut run = Self::new();
        run.ok(Input::Start { started: Box::new(started), carried: Carried::default() });
        run
    }

    /// Decides, checking what holds for every decision: a refusal changes nothing, the log folds to the state, equal inputs decide equally,
    /// and the oracle agrees with the projection.
    pub fn decide(&mut self, input: Input) -> Result<Decision, Reject> {
        self.random = self.random.wrapping_add(1);
        let env = Env { now: Timestamp::from_millis(self.now), random: self.random, limits: &self.limits, config_version: (1, 2), types: &self.types };
        let before = self.state.clone();
        let mut twin = before.clone();
        let result = decide(&mut self.state, &input, &env);
        assert_eq!(decide(&mut twin, &input, &env), result, "equal inputs decide equally");
        match &result {
            Err(_) => assert_eq!(self.state, before, "a refused input changes nothing: {input:?}"),
            Ok(decision) => {
                if before.exists() && !before.is_open() {
                    assert!(decision.records.is_empty(), "nothing after the end: {input:?}");
                }
                let mut fold = before.clone();
                decision.records.iter().for_each(|record| fold.apply(record));
                assert_eq!(fold, self.state, "the records fold to the state: {input:?}");
                assert_eq!(self.state.memory_bytes(), self.state.recounted_memory_bytes(), "what the state weighs is kept right: {input:?}");
                check_touched(&before, &self.state, decision);
                self.log.extend(decision.records.iter().cloned());
                self.check_log();
            }
        }
        result
    }

    /// What the oracle reads from the log alone is what the engine is told.
    pub fn check_log(&self) {
        let review = oracle::review(&self.log).unwrap_or_else(|violation| panic!("{violation}\n{:#?}", self.log));
        let projection = self.projection();
        assert_eq!(review.closed, self.state.exists() && !self.state.is_open());
        assert_eq!(review.last_event, projection.last_event);
        assert_eq!(review.due_at, projection.due_at, "armed is exactly what open items need");
        let tasks: Vec<(TaskKey, bool)> = projection.tasks.iter().map(|(key, task)| (*key, task.started.is_some())).collect();
        assert_eq!(review.tasks.into_iter().collect::<Vec<_>>(), tasks, "news means a task, and nothing else does");
        let unread: Vec<EventId> = self.state.unread_signals().map(|(id, _)| id).collect();
        assert_eq!(review.unread_signals, unread);
    }

    pub fn ok(&mut self, input: Input) -> Decision {
        self.decide(input).expect("the input is accepted")
    }

    pub fn refused(&mut self, input: Input) -> Reject {
        self.decide(input).expect_err("the input is refused")
    }

    pub fn projection(&self) -> Projection {
        self.state.projection()
    }

    pub fn execution_id(&self) -> ExecutionId {
        self.state.started().unwrap().execution_id
    }

    pub fn dispatch(&mut self, worker_number: u64) -> Dispatch {
        self.sequence += 1;
        Dispatch { epoch: Epoch(self.epoch), sequence: self.sequence, worker_id: worker(worker_number) }
    }

    pub fn token(&self, activity_id: Option<ActivityId>, attempt: Attempt, dispatch: Dispatch) -> TaskToken {
        TaskToken { execution_id: self.execution_id(), activity_id, attempt, dispatch }
    }

    pub fn signal(&mut self, name: &str, request_id: Option<RequestId>) -> Decision {
        self.ok(signal(name, request_id))
    }

    /// A worker takes the workflow task.
    pub fn take(&mut self) -> TaskToken {
        let dispatch = self.dispatch(1);
        let decision = self.ok(Input::StartWorkflowTask { dispatch: dispatch.clone() });
        let Reply::WorkflowTask { attempt, .. } = decision.reply else { panic!("{:?}", decision.reply) };
        self.token(None, attempt, dispatch)
    }

    pub fn completion(&self, token: TaskToken, commands: Vec<Command>) -> CompleteWorkflowTask {
        let worker_id = token.dispatch.worker_id.clone();
        CompleteWorkflowTask { token, worker_id, build_id: "b1".into(), sdk: "test/0".into(), consumed_signals: Vec::new(), commands }
    }

    /// A worker takes the workflow task and answers it; returns the id of the first command's event with the decision.
    pub fn act(&mut self, commands: Vec<Command>) -> (EventId, Decision) {
        let token = self.take();
        let first = EventId(self.state.last_event_id().0 + 2);
        let input = self.completion(token, commands);
        (first, self.ok(Input::CompleteWorkflowTask(Box::new(input))))
    }

    /// The worker that has the workflow task answers it.
    pub fn complete(&mut self, token: &TaskToken, commands: Vec<Command>) -> Decision {
        let input = self.completion(token.clone(), commands);
        self.ok(Input::CompleteWorkflowTask(Box::new(input)))
    }

    /// As [`Self::act`], taking all unread signals.
    pub fn act_reading(&mut self, commands: Vec<Command>) -> Decision {
        let token = self.take();
        let mut input = self.completion(token, commands);
        input.consumed_signals = self.state.unread_signals().map(|(id, _)| id).collect();
        self.ok(Input::CompleteWorkflowTask(Box::new(input)))
    }

    /// A worker takes an attempt of an activity.
    pub fn run_activity(&mut self, activity_id: ActivityId) -> TaskToken {
        let dispatch = self.dispatch(2);
        let decision = self.ok(Input::StartActivity { activity_id, dispatch: dispatch.clone() });
        let Reply::ActivityTask { attempt, .. } = decision.reply else { panic!("{:?}", decision.reply) };
        self.token(Some(activity_id), attempt, dispatch)
    }

    pub fn close_activity(&mut self, token: &TaskToken, outcome: ActivityOutcome) -> Result<Decision, Reject> {
        self.decide(close_activity(token, outcome))
    }

    /// Moves the clock to the next deadline and wakes the run.
    pub fn wake_at_due(&mut self) -> Decision {
        self.now = self.projection().due_at.expect("something falls due").as_millis();
        self.ok(Input::Wake)
    }

    /// Every event so far.
    pub fn events(&self) -> Vec<&EventKind> {
        self.log.iter().filter_map(|record| event_of(record)).collect()
    }

    pub fn last_event(&self) -> &EventKind {
        self.events().pop().expect("a run has events")
    }
}

/// Tasks that a decision does not touch are as they were.
fn check_touched(before: &State, after: &State, decision: &Decision) {
    let touched = touched(&decision.records);
    let (before, after) = (before.projection().tasks, after.projection().tasks);
    assert!(!touched.closed || after.is_empty());
    for key in before.keys().chain(after.keys()) {
        assert!(before.get(key) == after.get(key) || touched.closed || touched.all || touched.keys.contains(key), "{key:?} changed untouched");
    }
}

pub fn signal(name: &str, request_id: Option<RequestId>) -> Input {
    Input::Signal { name: SignalName::new(name).unwrap(), payload: payload("1"), request_id }
}

pub fn close_activity(token: &TaskToken, outcome: ActivityOutcome) -> Input {
    Input::CloseActivity { token: token.clone(), worker_id: token.dispatch.worker_id.clone(), outcome }
}

pub fn fail_task(token: &TaskToken, cause: WorkflowTaskFailure) -> Input {
    Input::FailWorkflowTask { token: token.clone(), worker_id: token.dispatch.worker_id.clone(), cause }
}

pub fn message(run: &Run, body: MessageBody) -> Input {
    let source = started("somebody-else").execution_id;
    Input::Message(Box::new(Message { source, target: run.execution_id(), body }))
}

pub fn event_of(record: &Record) -> Option<&EventKind> {
    match record {
        Record::Event(event) => Some(&event.kind),
        Record::Control(_) => None,
    }
}

/// The events of a decision.
pub fn events(decision: &Decision) -> Vec<&EventKind> {
    decision.records.iter().filter_map(event_of).collect()
}

/// The control records of a decision.
pub fn controls(decision: &Decision) -> Vec<&Control> {
    let control = |record| match record {
        &Record::Event(_) => None,
        Record::Control(control) => Some(control),
    };
    decision.records.iter().filter_map(control).collect()
}

/// The next run of the chain, as `decision` made it.
pub fn follow(run: &Run, decision: &Decision) -> Run {
    let successor = decision.successor.as_ref().unwrap();
    let mut next = Run::new();
    next.now = run.now;
    next.ok(Input::Start { started: Box::new(successor.started.clone()), carried: successor.carried.clone() });
    oracle::check_chain(&[&run.log, &next.log]).unwrap();
    next
}
