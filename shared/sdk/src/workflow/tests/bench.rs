//! One run of the real core, with a worker's executor beside it.

use crate::definition::{ActivityRegistration, WorkflowRegistration};
use crate::registry::Registry;
use crate::workflow::run::{Run, RunError};
use crate::workflow::shared::Told;
use harvest_ids::*;
use harvest_sdk_replay::{Completion, LocalActivity, LocalEnd};
use harvest_workflow_core::decide::decide;
use harvest_workflow_core::decision::{Reject, Reply, Successor};
use harvest_workflow_core::defaults::Types;
use harvest_workflow_core::event::{Event, EventKind, WorkflowStarted};
use harvest_workflow_core::input::{ActivityOutcome, Carried, CompleteWorkflowTask, Env, Input, TaskToken};
use harvest_workflow_core::limits::Limits;
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::record::{Dispatch, Record};
use harvest_workflow_core::state::State;
use std::sync::Arc;

pub(super) struct Bench {
    pub(super) state: State,
    pub(super) events: Vec<Event>,
    pub(super) registry: Arc<Registry>,
    pub(super) now: i64,
    pub(super) successor: Option<Box<Successor>>,
    sequence: u64,
    limits: Limits,
}

pub(super) fn registry(workflows: Vec<WorkflowRegistration>, activities: Vec<ActivityRegistration>) -> Arc<Registry> {
    Arc::new(Registry {
        workflows: workflows.into_iter().map(|it| (it.name, it)).collect(),
        activities: activities.into_iter().map(|it| (it.name, it)).collect(),
        ..Registry::default()
    })
}

pub(super) fn json(value: impl serde::Serialize) -> Payload {
    Payload::json(serde_json::to_vec(&value).unwrap())
}

impl Bench {
    pub(super) fn new(registry: Arc<Registry>, workflow_type: &str, input: impl serde::Serialize) -> Self {
        Self::with_timeout(registry, workflow_type, input, None)
    }

    pub(super) fn with_timeout(registry: Arc<Registry>, workflow_type: &str, input: impl serde::Serialize, timeout: Option<DurationMs>) -> Self {
        let mut bench = Self { state: State::empty(), events: Vec::new(), registry, now: 1_000_000, successor: None, sequence: 0, limits: Limits::default() };
        let workflow_id = WorkflowId::new("id").unwrap();
        let execution_id = ExecutionId::new(Slot::of(&Namespace::default(), &workflow_id), Timestamp::from_millis(bench.now), 7);
        let started = Box::new(WorkflowStarted {
            namespace: Namespace::default(),
            workflow_type: WorkflowType::new(workflow_type).unwrap(),
            workflow_id,
            execution_id,
            first_execution_id: execution_id,
            continued_from: None,
            parent: None,
            task_queue: TaskQueue::default(),
            input: json(input),
            request_id: None,
            execution_timeout: timeout,
            workflow_task_timeout: DurationMs::from_millis_const(10_000),
            chain_execution_timeout: None,
            chain_deadline: None,
            sla: None,
            config_version: (0, 0),
        });
        bench.input(Input::Start { started, carried: Carried::default() }).unwrap();
        bench
    }

    pub(super) fn input(&mut self, input: Input) -> Result<Reply, Reject> {
        let env = Env { now: Timestamp::from_millis(self.now), random: 99, limits: &self.limits, config_version: (0, 0), types: &Types::default() };
        let decision = decide(&mut self.state, &input, &env)?;
        self.events.extend(decision.records.into_iter().filter_map(|record| match record {
            Record::Event(event) => Some(event),
            Record::Control(_) => None,
        }));
        self.successor = decision.successor.or(self.successor.take());
        Ok(decision.reply)
    }

    pub(super) fn run(&self) -> Run {
        Run::new(self.registry.clone())
    }

    fn dispatch(&mut self) -> Dispatch {
        self.sequence += 1;
        Dispatch { epoch: Epoch(1), sequence: self.sequence, worker_id: WorkerId::new("w").unwrap() }
    }

    fn token(&self, activity_id: Option<ActivityId>, attempt: Attempt, dispatch: Dispatch) -> TaskToken {
        TaskToken { execution_id: self.state.started().unwrap().execution_id, activity_id, attempt, dispatch }
    }

    /// Works out the pending task in `run`.
    pub(super) fn decide_only(&mut self, run: &mut Run) -> (Result<Completion, RunError>, TaskToken) {
        let dispatch = self.dispatch();
        let Reply::WorkflowTask { attempt, last_event, .. } = self.input(Input::StartWorkflowTask { dispatch: dispatch.clone() }).unwrap() else {
            panic!("no workflow task")
        };
        let from = usize::try_from(run.next_event().0 - 1).unwrap();
        run.set_told(Told { at: Some(Timestamp::from_millis(self.now)), deadline: self.state.execution_deadline() });
        let decided = run.feed(self.events[from..].iter().cloned()).and_then(|()| run.decide(last_event));
        (decided, self.token(None, attempt, dispatch))
    }

    /// As [`Bench::task`] for code that runs local activities: `end` says how each ends.
    pub(super) fn task_with_locals(&mut self, run: &mut Run, mut end: impl FnMut(&LocalActivity) -> LocalEnd) {
        let dispatch = self.dispatch();
        let Reply::WorkflowTask { attempt, last_event, .. } = self.input(Input::StartWorkflowTask { dispatch: dispatch.clone() }).unwrap() else {
            panic!("no workflow task")
        };
        let from = usize::try_from(run.next_event().0 - 1).unwrap();
        run.feed(self.events[from..].iter().cloned()).unwrap();
        run.begin(last_event).unwrap();
        while let Some((handle, activity)) = run.locals().pop() {
            run.end_local(handle, end(&activity)).unwrap();
        }
        let completion = run.completion().unwrap();
        self.complete(self.token(None, attempt, dispatch), completion);
        let mut again = self.run();
        again.feed(self.events.iter().cloned()).unwrap();
        again.replay().unwrap();
    }

    pub(super) fn complete(&mut self, token: TaskToken, completion: Completion) -> Reply {
        let worker_id = token.dispatch.worker_id.clone();
        let (commands, consumed_signals) = (completion.commands, completion.consumed_signals);
        let task = CompleteWorkflowTask { token, worker_id, build_id: "b".to_owned(), sdk: "s".to_owned(), consumed_signals, commands };
        self.input(Input::CompleteWorkflowTask(Box::new(task))).unwrap()
    }

    /// Works out the pending task and records the decision. After each, a replay from scratch must come to the same.
    pub(super) fn task(&mut self, run: &mut Run) {
        let (decided, token) = self.decide_only(run);
        self.complete(token, decided.unwrap());
        let mut again = self.run();
        again.feed(self.events.iter().cloned()).unwrap();
        again.replay().unwrap();
    }

    /// The newest activity of a type.
    pub(super) fn activity(&self, activity_type: &str) -> ActivityId {
        let found =
            self.events.iter().rev().find(|event| matches!(&event.kind, EventKind::ActivityScheduled(it) if it.activity_type.as_str() == activity_type));
        found.unwrap_or_else(|| panic!("no activity {activity_type} in {:?}", self.events)).id
    }

    /// The newest activity of a type is run and ends so.
    pub(super) fn end_activity(&mut self, activity_type: &str, outcome: ActivityOutcome) {
        let activity_id = self.activity(activity_type);
        let dispatch = self.dispatch();
        let Reply::ActivityTask { attempt, .. } = self.input(Input::StartActivity { activity_id, dispatch: dispatch.clone() }).unwrap() else {
            panic!("no activity task")
        };
        let (token, worker_id) = (self.token(Some(activity_id), attempt, dispatch.clone()), dispatch.worker_id);
        self.input(Input::CloseActivity { token, worker_id, outcome }).unwrap();
    }

    pub(super) fn complete_activity(&mut self, activity_type: &str, output: impl serde::Serialize) {
        self.end_activity(activity_type, ActivityOutcome::Completed(json(output)));
    }

    pub(super) fn fail_activity(&mut self, activity_type: &str, error_type: &str) {
        let failure = Failure { message: "no".to_owned(), error_type: error_type.to_owned(), details: Some(json(5)), non_retryable: true };
        self.end_activity(activity_type, ActivityOutcome::Failed { failure, retry_after: None });
    }

    pub(super) fn signal(&mut self, name: &str, value: impl serde::Serialize) {
        self.input(Input::Signal { name: SignalName::new(name).unwrap(), payload: json(value), request_id: None }).unwrap();
    }

    /// Time passes.
    pub(super) fn pass(&mut self, millis: i64) {
        self.now += millis;
        self.input(Input::Wake).unwrap();
    }

    /// An operator pauses the run and lets it go on after a time.
    pub(super) fn pause(&mut self, millis: i64) {
        self.input(Input::Pause { longest: None, reason: String::new(), request_id: None }).unwrap();
        self.now += millis;
        self.input(Input::Resume { request_id: None }).unwrap();
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// How the run ended, as text.
    pub(super) fn outcome(&self) -> String {
        match &self.events.last().unwrap().kind {
            EventKind::WorkflowCompleted { output } => String::from_utf8(output.data.to_vec()).unwrap(),
            EventKind::WorkflowFailed { failure } => format!("failed {}: {}", failure.error_type, failure.message),
            EventKind::WorkflowCancelled { reason } => format!("cancelled {reason}"),
            EventKind::WorkflowContinuedAsNew { input, .. } => format!("continued {}", String::from_utf8(input.data.to_vec()).unwrap()),
            other => format!("open: {other:?}"),
        }
    }
}
