//! What a shard has taken in and not answered: bounded in number and in bytes, and shared fairly.
//!
//! A group of operations (those of one run's callers, the starts of one tenant, ..) may hold at most as much as is left free. So whoever is
//! alone gets half of the room, two that flood get a third each, and whoever comes next always finds some: a flood is refused, and the others
//! go on. What a run's workers, its timers and other runs say is a group of its own, so that a run goes on that its callers flood.

use super::operation::{BusinessKey, Operation, Refusal, Target};
use harvest_ids::{ExecutionId, Namespace, WorkerId};
use harvest_wire::worker::DecisionAhead;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::input::{ActivityOutcome, Carried, Input};
use harvest_workflow_core::measure::{failure_bytes, message_bytes, payload_bytes};
use harvest_workflow_core::record::WorkflowTaskFailure;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An operation that waits, with the place for its answer, besides what its texts and payloads weigh.
const OPERATION_BYTES: usize = 512;
/// A command or a token besides its payload.
const ITEM_BYTES: usize = 192;

/// Who shares a part of the room.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    /// What comes from outside for a run: signals, reads, queries, waits.
    Callers(ExecutionId),
    /// The same, for a run that is named by its key.
    CallersOfKey(BusinessKey),
    /// What makes a run go on: answers of workers, tasks taken, timers, messages, requests to end it.
    Work(ExecutionId),
    /// The same, for a run that is named by its key.
    WorkOfKey(BusinessKey),
    /// New runs of a tenant.
    Starts(Namespace),
    /// What a worker session says of itself.
    Session(WorkerId),
    /// What is for nobody.
    Nobody,
}

impl Group {
    /// The group of an operation.
    pub(crate) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Start(start) => Self::Starts(start.key.namespace.clone()),
            Operation::Input { target, input: Input::Signal { .. }, .. }
            | Operation::Describe(target)
            | Operation::Locate(target)
            | Operation::AwaitClose(target)
            | Operation::Query { target, .. } => match target {
                Target::Execution(id) | Target::ExecutionOf(_, id) => Self::Callers(*id),
                Target::Key(key) => Self::CallersOfKey(key.clone()),
            },
            Operation::Input { target, .. } => match target {
                Target::Execution(id) | Target::ExecutionOf(_, id) => Self::Work(*id),
                Target::Key(key) => Self::WorkOfKey(key.clone()),
            },
            Operation::Eager(eager) => eager.answers().map_or(Self::Nobody, |(token, _)| Self::Work(token.execution_id)),
            Operation::TakeTask { execution_id, .. } | Operation::TakeQuery { execution_id, .. } => Self::Work(*execution_id),
            Operation::AnswerQuery { token, .. } => Self::Work(token.execution_id),
            Operation::Deliver { message, .. } => Self::Work(message.target),
            Operation::Announce { worker_id, .. } => Self::Session(worker_id.clone()),
        }
    }
}

/// Bytes that an operation takes while it waits, by estimate.
pub(crate) fn operation_bytes(operation: &Operation) -> u64 {
    let bytes = match operation {
        Operation::Start(start) => payload_bytes(&start.input),
        Operation::Input { input, .. } => input_bytes(input),
        Operation::Eager(eager) => {
            let of_ahead = |ahead: &DecisionAhead| commands_bytes(&ahead.commands) + 8 * ahead.consumed_signals.len();
            input_bytes(&eager.input) + eager.ahead.as_ref().map_or(0, of_ahead)
        }
        Operation::Query { args, .. } => payload_bytes(args),
        Operation::AnswerQuery { outcome, .. } => outcome.as_ref().map_or_else(failure_bytes, payload_bytes),
        Operation::Announce { tokens, .. } => ITEM_BYTES * tokens.len(),
        Operation::Deliver { message, .. } => message_bytes(message),
        Operation::Describe(_) | Operation::Locate(_) | Operation::AwaitClose(_) | Operation::TakeTask { .. } | Operation::TakeQuery { .. } => 0,
    };
    u64::try_from(OPERATION_BYTES + bytes).unwrap_or(u64::MAX)
}

fn input_bytes(input: &Input) -> usize {
    match input {
        Input::Start { started, carried } => payload_bytes(&started.input) + carried_bytes(carried),
        Input::Signal { payload, .. } => payload_bytes(payload),
        Input::RequestCancel { reason, .. } | Input::Terminate { reason, .. } | Input::Pause { reason, .. } => reason.len(),
        Input::CompleteWorkflowTask(complete) => commands_bytes(&complete.commands) + 8 * complete.consumed_signals.len(),
        Input::FailWorkflowTask { cause, .. } => match cause {
            WorkflowTaskFailure::NonDeterminism { message, expected, actual, .. } => message.len() + expected.len() + actual.len(),
            WorkflowTaskFailure::Panicked { message } | WorkflowTaskFailure::WorkerError { message } => message.len(),
            WorkflowTaskFailure::TimedOut | WorkflowTaskFailure::UnseenNews => 0,
        },
        Input::CloseActivity { outcome, .. } => match outcome {
            ActivityOutcome::Completed(output) => payload_bytes(output),
            ActivityOutcome::Failed { failure, .. } => failure_bytes(failure),
            ActivityOutcome::Cancelled | ActivityOutcome::Released => 0,
        },
        Input::Heartbeat { details, .. } => details.as_ref().map_or(0, payload_bytes),
        Input::Message(message) => message_bytes(message),
        Input::StartWorkflowTask { .. }
        | Input::StartActivity { .. }
        | Input::AnnounceActivity { .. }
        | Input::ActivityLost { .. }
        | Input::Resume { .. }
        | Input::Wake => 0,
    }
}

fn carried_bytes(carried: &Carried) -> usize {
    carried.signals.iter().map(|signal| ITEM_BYTES + payload_bytes(&signal.payload)).sum::<usize>() + ITEM_BYTES * carried.request_ids.len()
}

fn commands_bytes(commands: &[Command]) -> usize {
    commands.iter().map(|command| ITEM_BYTES + command_bytes(command)).sum()
}

fn command_bytes(command: &Command) -> usize {
    match command {
        Command::ScheduleActivity(schedule) => payload_bytes(&schedule.input),
        Command::RecordSideEffect { value: payload, .. } | Command::CompleteWorkflow { output: payload } | Command::ContinueAsNew { input: payload, .. } => {
            payload_bytes(payload)
        }
        Command::RecordMarker { name, details } => name.len() + details.as_ref().map_or(0, payload_bytes),
        Command::StartChildWorkflow(child) => payload_bytes(&child.input),
        Command::ScheduleLocalActivity { input: payload, .. } | Command::CompleteLocalActivity { output: payload, .. } => payload_bytes(payload),
        Command::FailLocalActivity { failure, .. } => failure_bytes(failure),
        Command::FailWorkflow { failure } => failure_bytes(failure),
        Command::CancelWorkflow { reason } => reason.len(),
        Command::CancelActivity { .. }
        | Command::ExhaustLocalActivity { .. }
        | Command::StartTimer { .. }
        | Command::CancelTimer { .. }
        | Command::CancelChildWorkflow { .. } => 0,
    }
}

/// How much may wait, and what reaching it is called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) operations: usize,
    pub(crate) bytes: u64,
    /// The name of the bound of operations.
    pub(crate) operations_name: &'static str,
    /// The name of the bound of bytes.
    pub(crate) bytes_name: &'static str,
    /// The name of a group's part.
    pub(crate) share_name: &'static str,
}

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    operations: usize,
    bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    all: Held,
    groups: HashMap<Group, Held>,
}

/// Where operations are let in, each with a permit that it keeps for as long as it waits.
#[derive(Debug)]
pub(crate) struct Gate {
    room: Room,
    state: Mutex<State>,
}

impl Gate {
    pub(crate) fn new(room: Room) -> Arc<Self> {
        Arc::new(Self { room, state: Mutex::default() })
    }

    /// Lets an operation in.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] with the name of the bound.
    pub(crate) fn admit(self: &Arc<Self>, group: Group, bytes: u64) -> Result<Permit, Refusal> {
        let room = &self.room;
        let refused = |limit| Err(Refusal::Overloaded { limit });
        let mut state = self.state();
        let free = Held { operations: room.operations.saturating_sub(state.all.operations), bytes: room.bytes.saturating_sub(state.all.bytes) };
        if free.operations == 0 {
            return refused(room.operations_name);
        }
        // What is larger than the whole room is let in when nothing else is there.
        if bytes > free.bytes && state.all.operations > 0 {
            return refused(room.bytes_name);
        }
        let held = state.groups.get(&group).copied().unwrap_or_default();
        if held.operations > 0 && (held.operations + 1 > free.operations || held.bytes + bytes > free.bytes) {
            return refused(room.share_name);
        }
        let more = |held: Held| Held { operations: held.operations + 1, bytes: held.bytes + bytes };
        state.all = more(state.all);
        state.groups.insert(group.clone(), more(held));
        drop(state);
        Ok(Permit { gate: self.clone(), group, bytes })
    }

    /// How many operations, and bytes, are in.
    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, u64) {
        let state = self.state();
        (state.all.operations, state.all.bytes)
    }

    fn leave(&self, group: &Group, bytes: u64) {
        let mut state = self.state();
        let less = |held: Held| Held { operations: held.operations.saturating_sub(1), bytes: held.bytes.saturating_sub(bytes) };
        state.all = less(state.all);
        let left = state.groups.get_mut(group).map(|held| {
            *held = less(*held);
            held.operations
        });
        if left == Some(0) {
            state.groups.remove(group);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of an operation that was let in; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    group: Group,
    bytes: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.leave(&self.group, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_ids::{Slot, Timestamp};
    use proptest::prelude::*;

    const OPERATIONS: usize = 64;
    const BYTES: u64 = 6_400;

    fn gate() -> Arc<Gate> {
        Gate::new(Room { operations: OPERATIONS, bytes: BYTES, operations_name: "operations", bytes_name: "bytes", share_name: "share" })
    }

    fn run(number: u64) -> Group {
        Group::Callers(ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(0), number))
    }

    fn flood(gate: &Arc<Gate>, group: &Group, bytes: u64) -> (Vec<Permit>, Refusal) {
        let mut permits = Vec::new();
        loop {
            match gate.admit(group.clone(), bytes) {
                Ok(permit) => permits.push(permit),
                Err(refusal) => return (permits, refusal),
            }
        }
    }

    #[test]
    fn one_that_floods_gets_half_and_those_who_follow_always_find_room() {
        let gate = gate();
        let (first, refusal) = flood(&gate, &run(1), 1);
        assert_eq!((first.len(), refusal), (OPERATIONS / 2, Refusal::Overloaded { limit: "share" }));
        let (second, _) = flood(&gate, &run(2), 1);
        assert_eq!(second.len(), OPERATIONS / 4);
        let others: Vec<_> = (3..10).map(|number| gate.admit(run(number), 1).unwrap()).collect();
        drop(first);
        assert!(gate.admit(run(2), 1).is_ok());
        assert_eq!(gate.held().0, second.len() + others.len());
    }

    #[test]
    fn large_operations_are_bounded_by_their_bytes_and_named_so() {
        let gate = gate();
        let (held, refusal) = flood(&gate, &run(1), 900);
        assert_eq!((held.len(), refusal), (4, Refusal::Overloaded { limit: "share" }));
        assert!(gate.admit(run(2), 900).is_ok());
        assert_eq!(gate.admit(run(2), 3_800).unwrap_err(), Refusal::Overloaded { limit: "bytes" });
        drop(held);
        let alone = gate.admit(run(1), 10 * BYTES).unwrap();
        assert_eq!(gate.admit(run(2), 1).unwrap_err(), Refusal::Overloaded { limit: "bytes" });
        drop(alone);
        assert_eq!(gate.held(), (0, 0));
        assert!(gate.state().groups.is_empty(), "groups that hold nothing are forgotten");
    }

    proptest! {
        #[test]
        fn what_is_in_stays_within_the_room_and_whoever_holds_nothing_is_let_in_while_there_is_any(
            steps in prop::collection::vec((0_u64..6, 1_u64..700, any::<bool>()), 1..400),
        ) {
            let gate = gate();
            let mut held: Vec<(u64, Permit)> = Vec::new();
            for (who, bytes, comes) in steps {
                if comes {
                    let (operations, in_bytes) = gate.held();
                    let fits = operations < OPERATIONS && in_bytes + bytes <= BYTES;
                    let admitted = gate.admit(run(who), bytes);
                    let has_any = held.iter().any(|(other, _)| *other == who);
                    prop_assert!(admitted.is_ok() || !fits || has_any);
                    held.extend(admitted.ok().map(|permit| (who, permit)));
                } else if !held.is_empty() {
                    held.swap_remove(usize::try_from(who).unwrap() % held.len());
                }
                let sum: u64 = held.iter().map(|(_, permit)| permit.bytes).sum();
                prop_assert_eq!(gate.held(), (held.len(), sum));
                prop_assert!(held.len() <= OPERATIONS && sum <= BYTES);
            }
        }
    }
}
