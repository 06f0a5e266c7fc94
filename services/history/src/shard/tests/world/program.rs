//! Workflow code: a list of steps that follows from the run's input alone.

use super::dice::Dice;
use harvest_ids::{ActivityType, DurationMs, SignalName, TimerName, WorkflowId};
use harvest_sdk_replay::{Handle, LocalActivity, LocalEnd, LocalFailure, Machine, Recorded, ReplayError, Resolution, Step, Take, WaitKey};
use harvest_workflow_core::command::{ActivityOptions, Command, ScheduleActivity, StartChildWorkflow};
use harvest_workflow_core::event::{Event, SideEffectKind, WorkflowStarted};
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::retry::RetryPolicy;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
enum Op {
    Activities {
        count: u64,
        attempts: u32,
        timeout: bool,
    },
    /// Its name depends on the time that the code sees, so that a time that changes on replay is a mismatch.
    Timer(u64),
    SignalOrTimer(u64),
    Drain,
    SideEffect,
    /// An activity on the spot, which fails a few times and may have a result then.
    Local(u64),
    Child {
        shared: bool,
    },
    Detached,
    CancelActivity,
}

/// One run's code, at some step.
#[derive(Debug, Default)]
struct Program {
    started: Option<Arc<WorkflowStarted>>,
    ops: Vec<Op>,
    seed: u64,
    depth: u64,
    generations: u64,
    fails: bool,
    at: usize,
    waiting: Vec<Handle>,
}

/// The argument of a run: its seed, how deep its family may be, how often it continues as new.
pub(super) fn argument(seed: u64, depth: u64, generations: u64) -> Payload {
    Payload::json(format!("[{seed},{depth},{generations}]"))
}

/// A run in a worker's memory.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) machine: Machine,
    program: Program,
}

impl Code {
    pub(super) fn new() -> Self {
        Self { machine: Machine::new(), program: Program::default() }
    }

    /// Takes events and goes as far as they lead.
    pub(super) fn feed(&mut self, events: Vec<Event>) -> Result<(), String> {
        self.machine.feed(events).map_err(|error| error.to_string())
    }

    /// Runs until the code is at rest.
    pub(super) fn drive(&mut self) -> Result<(), ReplayError> {
        loop {
            match self.machine.advance()? {
                Step::Start(started) => {
                    self.program.begin(started);
                    self.program.run(&mut self.machine);
                }
                Step::Wake(WaitKey::Cancel) => self.machine.finish(Command::CancelWorkflow { reason: "asked to".to_owned() }),
                Step::Wake(_) => self.program.run(&mut self.machine),
                Step::AtRest => {
                    let Some(wanted) = self.machine.locals().next().map(|(handle, activity)| (handle, activity.input.clone())) else { return Ok(()) };
                    self.machine.end_local(wanted.0, local_end(&wanted.1));
                    self.program.run(&mut self.machine);
                }
            }
        }
    }
}

impl Program {
    fn begin(&mut self, started: Arc<WorkflowStarted>) {
        let argument: [u64; 3] = serde_json::from_slice(&started.input.data).unwrap();
        [self.seed, self.depth, self.generations] = argument;
        self.started = Some(started);
        let dice = Dice::new(self.seed);
        self.ops = (0..1 + dice.below(4)).map(|_| Self::op(&dice, self.depth)).collect();
        self.fails = dice.one_in(8);
    }

    fn op(dice: &Dice, depth: u64) -> Op {
        match dice.below(if depth > 0 { 13 } else { 10 }) {
            0..3 => Op::Activities { count: 1 + dice.below(3), attempts: 1 + u32::try_from(dice.below(3)).unwrap(), timeout: dice.one_in(4) },
            3 => Op::Timer(1 + dice.below(3_000)),
            4 | 5 => Op::SignalOrTimer(1 + dice.below(5_000)),
            6 => Op::Drain,
            7 => Op::SideEffect,
            8 => Op::CancelActivity,
            9 => Op::Local(dice.below(4)),
            10 | 11 => Op::Child { shared: dice.one_in(4) },
            _ => Op::Detached,
        }
    }

    fn run(&mut self, machine: &mut Machine) {
        while !machine.is_closed() && !machine.is_failed() {
            let Some(op) = self.ops.get(self.at).copied() else {
                machine.finish(self.end());
                return;
            };
            if !self.step(op, machine) {
                return;
            }
            self.at += 1;
        }
    }

    fn end(&self) -> Command {
        if self.generations > 0 {
            let input = argument(self.seed.wrapping_add(1), self.depth, self.generations - 1);
            return Command::ContinueAsNew { input, workflow_type: None, task_queue: None };
        }
        if self.fails {
            return Command::FailWorkflow { failure: Failure::engine("OnPurpose", "this code fails") };
        }
        Command::CompleteWorkflow { output: Payload::json(format!("{}", self.at)) }
    }

    /// True when the step is done.
    fn step(&mut self, op: Op, machine: &mut Machine) -> bool {
        match op {
            Op::Activities { count, attempts, timeout } => {
                if self.waiting.is_empty() {
                    self.waiting = (0..count).map(|_| machine.schedule_activity(activity(attempts, timeout))).collect();
                }
                self.waiting.retain(|handle| machine.take(*handle).is_none());
                self.waiting.is_empty()
            }
            Op::Timer(millis) => {
                if self.waiting.is_empty() {
                    let name = if machine.now().as_millis() % 2 == 0 { "even" } else { "odd" };
                    self.waiting = vec![timer(machine, name, millis)];
                }
                self.first_ended(machine)
            }
            Op::Child { shared } => {
                if self.waiting.is_empty() {
                    self.waiting = vec![machine.start_child_workflow(self.child(false, shared))];
                }
                self.first_ended(machine)
            }
            Op::Detached => {
                let handle = machine.start_child_workflow(self.child(true, false));
                machine.abandon(handle);
                true
            }
            Op::SignalOrTimer(millis) => {
                if self.waiting.is_empty() && machine.take_signal(&signal_name(), Take::InOrder).is_some() {
                    return true;
                }
                if self.waiting.is_empty() {
                    self.waiting = vec![timer(machine, "deadline", millis)];
                }
                machine.take_signal(&signal_name(), Take::InOrder).is_some() && self.abandon(machine) || self.first_ended(machine)
            }
            Op::Drain => {
                while machine.take_signal(&signal_name(), Take::All).is_some() {}
                true
            }
            Op::SideEffect => match machine.side_effect(SideEffectKind::Random, None) {
                Recorded::Value(_) => true,
                Recorded::Fresh => {
                    machine.record_side_effect(SideEffectKind::Random, None, Payload::json("4"));
                    true
                }
                Recorded::Diverged => false,
            },
            Op::Local(kind) => {
                if self.waiting.is_empty() {
                    self.waiting = vec![machine.run_local_activity(local(kind))];
                }
                self.first_ended(machine)
            }
            Op::CancelActivity => self.cancel_after_timer(machine),
        }
    }

    fn first_ended(&mut self, machine: &mut Machine) -> bool {
        self.waiting.iter().any(|handle| machine.take(*handle).is_some()) && self.abandon(machine)
    }

    fn abandon(&mut self, machine: &mut Machine) -> bool {
        self.waiting.drain(..).for_each(|handle| machine.abandon(handle));
        true
    }

    fn cancel_after_timer(&mut self, machine: &mut Machine) -> bool {
        if self.waiting.is_empty() {
            self.waiting = vec![machine.schedule_activity(activity(3, false)), timer(machine, "patience", 200)];
        }
        if machine.take(self.waiting[1]) == Some(Resolution::Fired) {
            machine.cancel(self.waiting[0]);
        }
        machine.take(self.waiting[0]).is_some() && self.abandon(machine)
    }

    fn child(&self, detached: bool, shared: bool) -> StartChildWorkflow {
        let started = self.started.as_ref().unwrap();
        let seed = self.seed.wrapping_mul(31).wrapping_add(u64::try_from(self.at).unwrap());
        let id = if shared { format!("shared-{}", seed % 3) } else { format!("{}/{}.{}", started.workflow_id, self.generations, self.at) };
        StartChildWorkflow {
            workflow_type: started.workflow_type.clone(),
            workflow_id: WorkflowId::new(id).unwrap(),
            task_queue: None,
            input: argument(seed, self.depth - 1, seed % 2),
            execution_timeout: None,
            detached,
        }
    }
}

fn local(kind: u64) -> LocalActivity {
    let input = Payload::json(kind.to_string());
    LocalActivity { activity_type: ActivityType::new("hash").unwrap(), input, options: ActivityOptions::default() }
}

/// As many failures as the argument says; three are one too many.
fn local_end(input: &Payload) -> LocalEnd {
    let failures: usize = serde_json::from_slice(&input.data).unwrap();
    let failed = LocalFailure { failure: Failure::engine("Local", "on purpose"), timeout: None };
    LocalEnd { failures: vec![failed; failures], output: (failures < 3).then(|| input.clone()) }
}

fn signal_name() -> SignalName {
    SignalName::new("go").unwrap()
}

fn timer(machine: &mut Machine, name: &str, millis: u64) -> Handle {
    machine.start_timer(TimerName::new(name).unwrap(), DurationMs::new("duration", millis).unwrap()).unwrap()
}

fn activity(attempts: u32, timeout: bool) -> ScheduleActivity {
    let retry = RetryPolicy::exponential(attempts, DurationMs::from_millis_const(200));
    let start_to_close = timeout.then(|| DurationMs::from_millis_const(2_000));
    ScheduleActivity {
        activity_type: ActivityType::new("charge").unwrap(),
        input: Payload::null(),
        options: ActivityOptions { retry: Some(retry), start_to_close, ..ActivityOptions::default() },
        attribute: ActivityOptions::default(),
        floor: ActivityOptions::default(),
    }
}
