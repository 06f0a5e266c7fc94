//! Workflow code for tests: a list of steps, run until one has to wait.

use crate::{Handle, Machine, Recorded, ReplayError, Resolution, Step, Take};
use harvest_ids::{ActivityType, DurationMs, SignalName, TimerName, WorkflowId, WorkflowType};
use harvest_workflow_core::command::{ActivityOptions, Command, ScheduleActivity, StartChildWorkflow};
use harvest_workflow_core::event::SideEffectKind;
use harvest_workflow_core::payload::Payload;

#[derive(Debug, Clone)]
pub(super) enum Op {
    Activity(u8),
    /// Started and cancelled in one go.
    Regret(u8),
    Timer(u8),
    /// Whichever comes first; the other is dropped.
    Race(u8),
    /// A signal or a timer, whichever is recorded first.
    SignalOrTimer,
    Signal,
    Drain,
    Random(u64),
    Named,
    Child,
    Detached,
    /// A long activity, cancelled when a timer fires.
    CancelActivity(u8),
    Patched(u8),
}

pub(super) struct Program {
    ops: Vec<Op>,
    at: usize,
    waiting: Vec<Handle>,
    fresh: u64,
    /// What the code saw, in order.
    pub(super) seen: Vec<String>,
}

pub(super) fn signal_name() -> SignalName {
    SignalName::new("go").unwrap()
}

pub(super) fn schedule(machine: &mut Machine, number: u8) -> Handle {
    let activity_type = ActivityType::new(format!("a{number}")).unwrap();
    machine.schedule_activity(ScheduleActivity {
        activity_type,
        input: Payload::null(),
        options: ActivityOptions::default(),
        attribute: ActivityOptions::default(),
        floor: ActivityOptions::default(),
    })
}

pub(super) fn timer(machine: &mut Machine, name: &str) -> Handle {
    machine.start_timer(TimerName::new(name).unwrap(), DurationMs::from_millis_const(1_000)).unwrap()
}

fn child(detached: bool, at: usize) -> StartChildWorkflow {
    StartChildWorkflow {
        workflow_type: WorkflowType::new("c").unwrap(),
        workflow_id: WorkflowId::new(format!("child-{at}")).unwrap(),
        task_queue: None,
        input: Payload::null(),
        execution_timeout: None,
        detached,
    }
}

impl Program {
    pub(super) fn new(ops: Vec<Op>) -> Self {
        Self { ops, at: 0, waiting: Vec::new(), fresh: 0, seen: Vec::new() }
    }

    /// Drives `machine` until it is at rest.
    pub(super) fn drive(&mut self, machine: &mut Machine) -> Result<(), ReplayError> {
        loop {
            match machine.advance()? {
                Step::Start(_) | Step::Wake(_) => self.run(machine),
                Step::AtRest => return Ok(()),
            }
        }
    }

    fn run(&mut self, machine: &mut Machine) {
        while !machine.is_closed() && !machine.is_failed() {
            let Some(op) = self.ops.get(self.at).cloned() else {
                machine.finish(Command::CompleteWorkflow { output: Payload::json(format!("{}", self.seen.len())) });
                return;
            };
            if !self.step(op, machine) {
                return;
            }
            self.at += 1;
        }
    }

    fn note(&mut self, what: impl std::fmt::Debug) {
        self.seen.push(format!("{}: {what:?}", self.at));
    }

    /// True when the step is done.
    fn step(&mut self, op: Op, machine: &mut Machine) -> bool {
        match op {
            Op::Activity(n) => self.wait_for(machine, |machine| vec![schedule(machine, n)]),
            Op::Timer(n) => self.wait_for(machine, |machine| vec![timer(machine, &format!("t{n}"))]),
            Op::Child => {
                let at = self.at;
                self.wait_for(machine, |machine| vec![machine.start_child_workflow(child(false, at))])
            }
            Op::Race(n) => self.wait_for(machine, |machine| vec![schedule(machine, n), timer(machine, "race")]),
            Op::Detached => {
                let handle = machine.start_child_workflow(child(true, self.at));
                machine.abandon(handle);
                true
            }
            Op::Regret(n) => {
                let handles = [timer(machine, "regret"), schedule(machine, n)];
                for handle in handles {
                    machine.cancel(handle);
                    self.note(machine.take(handle));
                }
                true
            }
            Op::CancelActivity(n) => self.cancel_after_timer(n, machine),
            Op::Signal => self.take_signal(machine),
            Op::SignalOrTimer => {
                if self.waiting.is_empty() && self.take_signal(machine) {
                    return true;
                }
                if self.waiting.is_empty() {
                    self.waiting.push(timer(machine, "deadline"));
                }
                if let Some(end) = machine.take(self.waiting[0]) {
                    self.note(end);
                } else if !self.take_signal(machine) {
                    return false;
                }
                machine.abandon(self.waiting[0]);
                self.waiting.clear();
                true
            }
            Op::Drain => {
                while let Some(signal) = machine.take_signal(&signal_name(), Take::All) {
                    self.note(signal);
                }
                true
            }
            Op::Random(value) => self.side_effect(SideEffectKind::Random, None, value, machine),
            Op::Named => {
                self.fresh += 1;
                self.side_effect(SideEffectKind::Custom, Some("named"), self.fresh, machine)
            }
            Op::Patched(n) => {
                let patched = machine.patched(&format!("p{n}"));
                self.note(patched);
                true
            }
        }
    }

    fn wait_for(&mut self, machine: &mut Machine, ask: impl FnOnce(&mut Machine) -> Vec<Handle>) -> bool {
        if self.waiting.is_empty() {
            self.waiting = ask(machine);
        }
        let ended = self.waiting.iter().find_map(|handle| machine.take(*handle));
        let Some(ended) = ended else { return false };
        self.note(ended);
        for handle in std::mem::take(&mut self.waiting) {
            machine.abandon(handle);
        }
        true
    }

    fn cancel_after_timer(&mut self, n: u8, machine: &mut Machine) -> bool {
        if self.waiting.is_empty() {
            self.waiting = vec![schedule(machine, n), timer(machine, "patience")];
        }
        if machine.take(self.waiting[1]) == Some(Resolution::Fired) {
            machine.cancel(self.waiting[0]);
        }
        let Some(ended) = machine.take(self.waiting[0]) else { return false };
        self.note(ended);
        machine.abandon(self.waiting[1]);
        self.waiting.clear();
        true
    }

    fn take_signal(&mut self, machine: &mut Machine) -> bool {
        let Some(signal) = machine.take_signal(&signal_name(), Take::InOrder) else { return false };
        self.note(signal);
        true
    }

    fn side_effect(&mut self, kind: SideEffectKind, name: Option<&str>, fresh: u64, machine: &mut Machine) -> bool {
        let value = match machine.side_effect(kind, name) {
            Recorded::Value(value) => value,
            Recorded::Fresh => {
                let value = Payload::json(fresh.to_string());
                machine.record_side_effect(kind, name, value.clone());
                value
            }
            Recorded::Diverged => return false,
        };
        self.note(value);
        true
    }
}
