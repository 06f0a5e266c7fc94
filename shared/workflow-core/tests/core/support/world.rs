//! One chain of runs with its workers, children and owners, driven by random steps. Every step checks the laws that it can break.

use super::steps::*;
use super::*;
use harvest_workflow_core::machine::workflow_task::WorkflowTask;
use harvest_workflow_core::message::ChildOutcome;
use std::collections::BTreeMap;

pub struct World {
    pub run: Run,
    /// Logs of the runs before the current one.
    pub chain: Vec<Vec<Record>>,
    /// The workflow task that a worker has.
    task: Option<TaskToken>,
    /// Attempts that workers have, or had.
    attempts: Vec<TaskToken>,
    accepted: Vec<Input>,
    successor: Option<Box<harvest_workflow_core::decision::Successor>>,
    children: u64,
    /// Runs before the last one, in the longest chain so far.
    pub longest_chain: usize,
    /// How often each kind of record, reply and refusal was seen.
    pub seen: BTreeMap<String, u64>,
}

/// The name of an enum's variant, from its debug text.
fn variant(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

/// The commands of a local activity.
fn local(commands: &mut Vec<Command>, failures: u32, has_result: bool) {
    let command = commands.len();
    commands.push(Command::ScheduleLocalActivity { activity_type: harvest_ids::ActivityType::new("hash").unwrap(), input: payload("1") });
    commands.extend((1..=failures).map(|attempt| Command::FailLocalActivity { command, attempt: Attempt(attempt), failure: failure("Local") }));
    if has_result {
        commands.push(Command::CompleteLocalActivity { command, output: payload("2") });
    } else if failures > 0 {
        commands.push(Command::ExhaustLocalActivity { command, attempt: Attempt(failures), timeout: None });
    }
}

impl World {
    pub fn new(limits: Limits) -> Self {
        let mut start = started("order-1");
        start.execution_timeout = Some(ms(3_600_000));
        start.sla = Some(ms(20_000));
        start.parent = Some(harvest_workflow_core::event::Parent { execution_id: started("parent").execution_id, initiated: EventId(3), detached: false });
        let mut run = Run::new();
        run.limits = limits;
        let mut world = Self {
            run,
            chain: Vec::new(),
            task: None,
            attempts: Vec::new(),
            accepted: Vec::new(),
            successor: None,
            children: 0,
            longest_chain: 0,
            seen: BTreeMap::new(),
        };
        world.input(Input::Start { started: Box::new(start), carried: Carried::default() });
        world
    }

    fn count(&mut self, what: String) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Decides one input under all laws; what was accepted is tried again now and then.
    fn input(&mut self, input: Input) -> Option<Decision> {
        self.check_backward_clock(&input);
        let was_open = self.run.state.is_open();
        let last_before = self.run.state.last_event_id();
        match self.run.decide(input.clone()) {
            Err(reject) => {
                self.count(format!("Reject::{}", variant(&reject)));
                None
            }
            Ok(decision) => {
                self.count(format!("Reply::{}", variant(&decision.reply)));
                for record in &decision.records {
                    match record {
                        Record::Event(event) => self.count(format!("Event::{}", variant(&event.kind))),
                        Record::Control(control) => self.count(format!("Control::{}", variant(control))),
                    }
                }
                if decision.reply == Reply::Duplicate {
                    assert!(
                        decision.records.is_empty() || matches!(input, Input::RequestCancel { .. } | Input::Pause { .. } | Input::Resume { .. }),
                        "a duplicate changes nothing: {input:?}"
                    );
                }
                for message in &decision.messages {
                    self.count(format!("Message::{}", variant(&message.body)));
                    assert_ne!(message.target, message.source);
                }
                self.check_close(was_open, &decision);
                assert!(self.run.state.last_event_id() >= last_before);
                self.successor = decision.successor.clone().or(self.successor.take());
                self.check_repetition(&input);
                // The owner numbers each dispatch once: those inputs cannot arrive twice.
                if !matches!(input, Input::StartWorkflowTask { .. } | Input::StartActivity { .. }) {
                    self.accepted.push(input);
                }
                Some(decision)
            }
        }
    }

    /// An end tells the parent once, unless a successor goes on; a closed run owes nothing.
    fn check_close(&self, was_open: bool, decision: &Decision) {
        let told = decision.messages.iter().filter(|message| matches!(message.body, MessageBody::ChildClosed { .. })).count();
        let closed_now = was_open && !self.run.state.is_open();
        let continued = self.run.state.continued_as().is_some();
        assert_eq!(told, usize::from(closed_now && !continued));
        assert_eq!(decision.successor.is_some(), closed_now && continued);
        if self.run.state.exists() && !self.run.state.is_open() {
            let projection = self.run.projection();
            assert_eq!((projection.due_at, projection.tasks.len(), projection.blocked), (None, 0, None));
        }
    }

    /// A clock before the newest record decides as one that stands at it.
    fn check_backward_clock(&self, input: &Input) {
        let at = self.run.state.last_record_at();
        let decide_at = |now: Timestamp| {
            let mut state = self.run.state.clone();
            let env = Env { now, random: 5, limits: &self.run.limits, config_version: (1, 2), types: &self.run.types };
            (decide(&mut state, input, &env), state)
        };
        if self.run.state.exists() {
            assert_eq!(decide_at(at), decide_at(Timestamp::from_millis(at.as_millis() - 86_400_000)));
        }
    }

    /// What names its request or its dispatch is accepted once.
    fn check_repetition(&mut self, input: &Input) {
        let before = self.run.log.len();
        let repeated = match input {
            Input::Signal { request_id: Some(id), .. } | Input::RequestCancel { request_id: Some(id), .. } | Input::Terminate { request_id: Some(id), .. }
                if self.run.state.is_open() || self.run.state.request_seen(id) =>
            {
                Some(Ok(Reply::Duplicate))
            }
            Input::Start { .. } | Input::Message(_) => Some(Ok(Reply::Duplicate)),
            Input::CompleteWorkflowTask(_) | Input::FailWorkflowTask { .. } | Input::CloseActivity { .. } => Some(Err(())),
            _ => None,
        };
        let Some(expected) = repeated else { return };
        let answer = self.run.decide(input.clone());
        match (expected, answer) {
            (Ok(reply), Ok(decision)) => assert_eq!(decision.reply, reply, "{input:?}"),
            (Err(()), Err(Reject::StaleTask { .. } | Reject::Closed { .. })) => {}
            (_, answer) => panic!("{input:?} again: {answer:?}"),
        }
        assert_eq!(self.run.log.len(), before, "a repetition writes nothing: {input:?}");
    }

    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Clock(by) => self.run.now = self.run.now.saturating_add(*by),
            Step::Wake => {
                self.input(Input::Wake);
            }
            Step::WakeAtDue => self.wake_at_due(),
            Step::WakeAtEnd => {
                if let Some(due) = self.run.projection().due_at {
                    self.wake_at(due);
                }
            }
            Step::Signal { request: id, bytes } => {
                let name = SignalName::new("go").unwrap();
                self.input(Input::Signal { name, payload: payload(&"s".repeat(*bytes)), request_id: id.map(request) });
            }
            Step::Cancel { request: id } => {
                self.input(Input::RequestCancel { reason: "a client asked".into(), request_id: id.map(request) });
            }
            Step::Terminate { request: id } => {
                self.input(Input::Terminate { reason: "an operator".into(), request_id: id.map(request) });
            }
            Step::Pause { request: id, millis } => {
                self.input(Input::Pause { longest: Some(ms(*millis)), reason: "an operator".into(), request_id: id.map(request) });
            }
            Step::Resume { request: id } => {
                self.input(Input::Resume { request_id: id.map(request) });
            }
            Step::Take => self.take(),
            Step::Decide { commands, read } => self.decide(commands, *read),
            Step::GiveUp(cause) => self.give_up(*cause),
            Step::Run { pick } => self.run_activity(*pick),
            Step::Close { pick, end } => {
                if let Some(token) = self.attempt(*pick) {
                    self.input(close_activity(&token, outcome(*end)));
                }
            }
            Step::Heartbeat { pick, details } => {
                if let Some(token) = self.attempt(*pick) {
                    let worker_id = token.dispatch.worker_id.clone();
                    self.input(Input::Heartbeat { token, worker_id, details: details.then(|| payload("7")) });
                }
            }
            Step::Extend => {
                if let Some(token) = self.task.clone() {
                    let worker_id = token.dispatch.worker_id.clone();
                    self.input(Input::Heartbeat { token, worker_id, details: None });
                }
            }
            Step::Announce { pick } => {
                if let Some(token) = self.attempt(*pick) {
                    let worker_id = token.dispatch.worker_id.clone();
                    self.input(Input::AnnounceActivity { token, worker_id });
                }
            }
            Step::Lose { pick } => {
                if let Some(token) = self.attempt(*pick) {
                    self.input(Input::ActivityLost { activity_id: token.activity_id.unwrap(), attempt: token.attempt });
                }
            }
            Step::TakeOver => self.take_over(),
            Step::Child { pick, end } => self.child_reports(*pick, *end),
            Step::AskedByParent => {
                let body = MessageBody::CancelChild { reason: "the parent".into() };
                let input = message(&self.run, body);
                self.input(input);
            }
            Step::Repeat { pick } => {
                if !self.accepted.is_empty() {
                    let input = self.accepted[pick % self.accepted.len()].clone();
                    self.input(input);
                }
            }
            Step::Forge { pick } => self.forge(*pick),
            Step::Follow => self.follow(),
        }
    }

    /// Waking at the next deadline always gets past it.
    fn wake_at_due(&mut self) {
        let Some(due) = self.run.projection().due_at else { return };
        // A run that waits for nothing else is due at its execution timeout: that is for `WakeAtEnd`.
        if due > Timestamp::from_millis(self.run.now).plus(ms(600_000)) {
            return;
        }
        self.wake_at(due);
    }

    fn wake_at(&mut self, due: Timestamp) {
        self.run.now = self.run.now.max(due.as_millis());
        self.input(Input::Wake);
        let now = Timestamp::from_millis(self.run.now).max(self.run.state.last_record_at());
        assert!(self.run.projection().due_at.is_none_or(|next| next > now), "nothing that is due is left over");
    }

    fn take(&mut self) {
        let dispatch = self.run.dispatch(1);
        let decision = self.input(Input::StartWorkflowTask { dispatch: dispatch.clone() });
        if let Some(Reply::WorkflowTask { attempt, last_event, previous_decision, .. }) = decision.map(|decision| decision.reply) {
            assert!(previous_decision < last_event && last_event == self.run.state.last_event_id());
            self.task = Some(self.run.token(None, attempt, dispatch));
        }
    }

    fn decide(&mut self, wants: &[Want], read: usize) {
        if !matches!(self.run.state.workflow_task(), WorkflowTask::Started { .. }) {
            self.take();
        }
        let Some(token) = self.task.clone() else { return };
        let seen = match self.run.state.workflow_task() {
            WorkflowTask::Started { seen, .. } => *seen,
            _ => EventId(0),
        };
        let mut commands = Vec::new();
        for want in wants {
            match want {
                Want::Local { failures, has_result } => local(&mut commands, *failures, *has_result),
                other => commands.push(self.command(other)),
            }
        }
        let unread = self.run.state.unread_signals().map(|(id, _)| id).filter(|id| *id <= seen);
        let consumed_signals: Vec<EventId> = unread.take(read).collect();
        let before = self.run.state.last_event_id();
        let expected = commands.len();
        let completion = CompleteWorkflowTask { consumed_signals, ..self.run.completion(token.clone(), commands) };
        match self.input(Input::CompleteWorkflowTask(Box::new(completion))) {
            Some(decision) if matches!(event_of_first(&decision), Some(EventKind::WorkflowTaskCompleted(_))) => {
                assert!(self.run.state.last_event_id().0 > before.0 + u64::try_from(expected).unwrap(), "one event for each command");
            }
            Some(_) => {}
            // A refused decision is one that the worker could not make.
            None => {
                self.input(fail_task(&token, WorkflowTaskFailure::WorkerError { message: "refused".into() }));
            }
        }
    }

    fn give_up(&mut self, cause: Cause) {
        let Some(token) = self.task.clone() else { return };
        let cause = match cause {
            Cause::TimedOut => WorkflowTaskFailure::TimedOut,
            Cause::NonDeterminism => {
                WorkflowTaskFailure::NonDeterminism { message: "m".into(), expected: "e".into(), actual: "a".into(), event_id: EventId(2) }
            }
            Cause::Panicked => WorkflowTaskFailure::Panicked { message: "p".into() },
            Cause::WorkerError => WorkflowTaskFailure::WorkerError { message: "w".into() },
        };
        self.input(fail_task(&token, cause));
    }

    fn run_activity(&mut self, pick: usize) {
        let waiting: Vec<ActivityId> = self.run.state.activities().map(|(id, _)| id).collect();
        let activity_id = if waiting.is_empty() { EventId(2) } else { waiting[pick % waiting.len()] };
        let dispatch = self.run.dispatch(2);
        let decision = self.input(Input::StartActivity { activity_id, dispatch: dispatch.clone() });
        if let Some(Reply::ActivityTask { attempt, .. }) = decision.map(|decision| decision.reply) {
            self.attempts.push(self.run.token(Some(activity_id), attempt, dispatch));
        }
    }

    /// Mostly one of the latest attempts.
    fn attempt(&self, pick: usize) -> Option<TaskToken> {
        let from = if pick.is_multiple_of(5) { 0 } else { self.attempts.len().saturating_sub(4) };
        let recent = &self.attempts[from..];
        (!recent.is_empty()).then(|| recent[pick % recent.len()].clone())
    }

    /// The next owner reads what was committed; the start of an attempt that only rode along is gone, and its worker does not know.
    fn take_over(&mut self) {
        if matches!(self.run.log.last(), Some(Record::Control(Control::ActivityAttemptStarted { .. }))) {
            self.run.log.pop();
            self.count("lost start".into());
        }
        self.run.state = State::from_records(&self.run.log);
        self.run.epoch += 1;
        self.run.sequence = 0;
        self.run.check_log();
    }

    fn child_reports(&mut self, pick: usize, end: ChildEnd) {
        let children: Vec<EventId> = self.run.state.children().map(|(id, _)| id).collect();
        if children.is_empty() {
            return;
        }
        let initiated = children[pick % children.len()];
        let body = match end {
            ChildEnd::Completed => MessageBody::ChildClosed { initiated, outcome: ChildOutcome::Completed(payload("1")) },
            ChildEnd::Failed => MessageBody::ChildClosed { initiated, outcome: ChildOutcome::Failed(failure("NoStock")) },
            ChildEnd::Refused => MessageBody::ChildStartRefused { initiated, failure: failure("ChildAlreadyRunning") },
        };
        let input = message(&self.run, body);
        self.input(input);
    }

    /// An answer with a dispatch that nobody was given, or from somebody else.
    fn forge(&mut self, pick: usize) {
        let Some(token) = self.attempt(pick) else { return };
        let running = self.run.state.running_activities().any(|(id, ..)| Some(id) == token.activity_id);
        let forged = self.run.dispatch(4);
        let (worker_id, token) =
            if pick.is_multiple_of(2) || !running { (worker(9), token) } else { (forged.worker_id.clone(), TaskToken { dispatch: forged, ..token }) };
        let input = Input::CloseActivity { token, worker_id, outcome: ActivityOutcome::Completed(payload("0")) };
        assert!(self.input(input).is_none(), "a forged answer is refused");
    }

    /// Starts the successor, or another chain once this one has ended.
    fn follow(&mut self) {
        if self.run.state.is_open() {
            return;
        }
        let Some(successor) = self.successor.take() else {
            self.check_chain();
            self.longest_chain = self.longest_chain.max(self.chain.len());
            let limits = self.run.limits.clone();
            let next = Self::new(limits);
            (self.run, self.chain) = (Run { now: self.run.now, ..next.run }, Vec::new());
            (self.task, self.attempts, self.accepted) = (None, Vec::new(), Vec::new());
            return;
        };
        let mut next = Run::new();
        (next.now, next.random, next.epoch) = (self.run.now, self.run.random, self.run.epoch + 1);
        next.limits = self.run.limits.clone();
        let previous = std::mem::replace(&mut self.run, next);
        self.chain.push(previous.log);
        (self.task, self.attempts, self.accepted) = (None, Vec::new(), Vec::new());
        self.input(Input::Start { started: Box::new(successor.started), carried: successor.carried });
        self.check_chain();
        self.longest_chain = self.longest_chain.max(self.chain.len());
    }

    pub fn check_chain(&self) {
        let mut logs: Vec<&[Record]> = self.chain.iter().map(Vec::as_slice).collect();
        logs.push(&self.run.log);
        oracle::check_chain(&logs).unwrap();
    }

    /// Whatever happened, a run that is decided comes to its end within a few tasks.
    pub fn finish(&mut self) {
        for _ in 0..20 {
            if !self.run.state.is_open() {
                return;
            }
            self.input(Input::Resume { request_id: None });
            match self.run.state.workflow_task() {
                WorkflowTask::None => self.wake_up(),
                WorkflowTask::Started { .. } | WorkflowTask::Backoff { .. } => self.wake_at_due(),
                WorkflowTask::Ready { .. } => self.decide(&[Want::Complete], 0),
            }
        }
        panic!("the run does not end: {:#?}", self.run.state);
    }

    /// News for a run that waits: a signal, or where no more fit a cancel request, or its own end.
    fn wake_up(&mut self) {
        let signalled = self.run.decide(signal("end", None)).is_ok();
        let cancel = Input::RequestCancel { reason: "the end".into(), request_id: None };
        if !signalled && self.run.decide(cancel).is_ok_and(|decision| decision.reply == Reply::Duplicate) {
            let due = self.run.projection().due_at.expect("every run here has an execution timeout");
            self.wake_at(due);
        }
    }

    fn command(&mut self, want: &Want) -> Command {
        let pick_from = |ids: Vec<EventId>, pick: usize| if ids.is_empty() { None } else { Some(ids[pick % ids.len()]) };
        match want {
            Want::Activity { attempts, start_to_close, schedule_to_start, schedule_to_close, heartbeat, jitter } => {
                let policy = if *jitter { RetryPolicy::exponential(*attempts, ms(50)) } else { RetryPolicy::fixed(*attempts, ms(700)) };
                let mut schedule = activity(RetryPolicy { non_retryable_errors: vec!["Declined".into()], ..policy });
                schedule.options.start_to_close = start_to_close.then(|| ms(4_000));
                schedule.options.schedule_to_start = schedule_to_start.then(|| ms(9_000));
                schedule.options.schedule_to_close = schedule_to_close.then(|| ms(11_000));
                schedule.options.heartbeat_timeout = heartbeat.then(|| ms(1_500));
                Command::ScheduleActivity(Box::new(schedule))
            }
            Want::Local { .. } => unreachable!("it is several commands"),
            Want::CancelActivity { pick } => pick_from(self.started_by(|kind| matches!(kind, EventKind::ActivityScheduled(_))), *pick)
                .map_or_else(|| timer(1), |activity_id| Command::CancelActivity { activity_id }),
            Want::Timer { millis } => timer(*millis),
            Want::CancelTimer { pick } => pick_from(self.started_by(|kind| matches!(kind, EventKind::TimerStarted { .. })), *pick)
                .map_or_else(|| timer(1), |started| Command::CancelTimer { started }),
            Want::SideEffect => Command::RecordSideEffect { kind: harvest_workflow_core::event::SideEffectKind::Now, name: None, value: payload("1") },
            Want::Marker => Command::RecordMarker { name: "patch:a".into(), details: None },
            Want::Child { detached } => {
                self.children += 1;
                child(&format!("child-{}", self.children), *detached)
            }
            Want::CancelChild { pick } => {
                let is_child = |kind: &EventKind| matches!(kind, EventKind::ChildWorkflowStarted { .. } | EventKind::ChildWorkflowSpawnedDetached { .. });
                pick_from(self.started_by(is_child), *pick).map_or_else(|| timer(1), |started| Command::CancelChildWorkflow { started })
            }
            Want::Nonsense => Command::CancelTimer { started: EventId(1) },
            Want::Complete => complete(),
            Want::CompleteLarge => Command::CompleteWorkflow { output: payload(&"9".repeat(100)) },
            Want::Fail => Command::FailWorkflow { failure: failure("Broken") },
            Want::CancelSelf => Command::CancelWorkflow { reason: "asked".into() },
            Want::ContinueAsNew => continue_as_new(),
        }
    }

    /// Ids of all events of a kind, of what has ended too.
    fn started_by(&self, wanted: impl Fn(&EventKind) -> bool) -> Vec<EventId> {
        let matching = |record: &Record| match record {
            Record::Event(event) if wanted(&event.kind) => Some(event.id),
            Record::Event(_) | Record::Control(_) => None,
        };
        self.run.log.iter().filter_map(matching).collect()
    }
}

fn event_of_first(decision: &Decision) -> Option<&EventKind> {
    decision.records.first().and_then(event_of)
}

fn outcome(end: End) -> ActivityOutcome {
    match end {
        End::Completed => ActivityOutcome::Completed(payload("1")),
        End::Failed { retry_after } => ActivityOutcome::Failed { failure: failure("Busy"), retry_after: retry_after.then(|| ms(3)) },
        End::Declined => ActivityOutcome::Failed { failure: failure("Declined"), retry_after: None },
        End::Cancelled => ActivityOutcome::Cancelled,
        End::Released => ActivityOutcome::Released,
    }
}
