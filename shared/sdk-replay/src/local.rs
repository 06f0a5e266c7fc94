//! Local activities: run by the worker on the spot, within the decision that asks for them.
//!
//! While a decision is live, whoever drives the machine runs what [`Machine::locals`] lists when the code is at rest, and tells each end by
//! [`Machine::end_local`]. In a recorded decision the ends are handed out from the record, at the same places: when the code is at rest, one after the
//! other, in their order.

use crate::item::{Handle, ItemKind, Resolution, Stage, WaitKey};
use crate::machine::{Current, Machine};
use harvest_ids::{ActivityType, Attempt};
use harvest_workflow_core::command::{ActivityOptions, Command};
use harvest_workflow_core::event::{ActivityTimeout, EventKind};
use harvest_workflow_core::payload::{Failure, Payload};

/// A local activity that somebody has to run.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalActivity {
    /// The function.
    pub activity_type: ActivityType,
    /// The argument.
    pub input: Payload,
    /// What applies to it: only `retry` and `start_to_close` mean something.
    pub options: ActivityOptions,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalFailure {
    /// What went wrong.
    pub failure: Failure,
    /// The limit that it ran into, if it did.
    pub timeout: Option<ActivityTimeout>,
}

/// How a local activity ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalEnd {
    /// Its failed attempts, in order.
    pub failures: Vec<LocalFailure>,
    /// The result; none when the last failure was the end.
    pub output: Option<Payload>,
}

impl Machine {
    /// The code wants an activity on the spot.
    pub fn run_local_activity(&mut self, activity: LocalActivity) -> Handle {
        let command = Command::ScheduleLocalActivity { activity_type: activity.activity_type.clone(), input: activity.input.clone() };
        let handle = self.ask_item(ItemKind::Local, command);
        if !self.closed && self.failure.is_none() {
            self.locals.insert(handle, activity);
        }
        handle
    }

    /// Local activities of the live decision that have not ended; empty when the code has ended.
    pub fn locals(&self) -> impl Iterator<Item = (Handle, &LocalActivity)> {
        let live = matches!(self.current, Current::Live) && !self.closed;
        self.locals.iter().filter(move |_| live).map(|(handle, activity)| (*handle, activity))
    }

    /// A local activity of the live decision has ended. Returns what to wake; nothing when the code does not want it any more.
    pub fn end_local(&mut self, handle: Handle, end: LocalEnd) -> Option<WaitKey> {
        self.locals.remove(&handle)?;
        let command = self.slot_of(handle)?;
        let mut attempt = Attempt(0);
        let mut last = None;
        for LocalFailure { failure, timeout } in end.failures {
            attempt = attempt.next();
            self.ask(Command::FailLocalActivity { command, attempt, failure: failure.clone() }, None);
            last = Some((failure, timeout));
        }
        let resolution = match (end.output, last) {
            (Some(output), _) => {
                self.ask(Command::CompleteLocalActivity { command, output: output.clone() }, None);
                Resolution::Completed(output)
            }
            (None, Some((failure, timeout))) => {
                self.ask(Command::ExhaustLocalActivity { command, attempt, timeout }, None);
                ended(failure, attempt, timeout)
            }
            (None, None) => return None,
        };
        self.resolve(handle, resolution)
    }

    /// The next end of a local activity in the recorded decision, when the code has asked for that activity.
    pub(crate) fn next_recorded_local(&mut self) -> Option<WaitKey> {
        let Current::Replayed(decision) = &self.current else { return None };
        let first = decision.id.0 + 1;
        let mut failed: Option<Failure> = None;
        for (index, event) in decision.commands.iter().enumerate().skip(self.locals_taken) {
            let (activity_id, end) = match &event.kind {
                EventKind::LocalActivityFailed { activity_id, failure, .. } => {
                    failed = Some(failure.clone());
                    (*activity_id, None)
                }
                EventKind::LocalActivityCompleted { activity_id, output } => (*activity_id, Some(Ok(output.clone()))),
                EventKind::LocalActivityExhausted { activity_id, attempt, timeout } => (*activity_id, Some(Err((*attempt, *timeout)))),
                _ => continue,
            };
            let Some(end) = end else { continue };
            let events = &decision.commands[self.locals_taken..=index];
            let commands: Vec<Command> = events.iter().filter_map(|event| as_command(&event.kind)).collect();
            let number = decision.commands.iter().take_while(|event| event.id != activity_id).filter(|event| is_schedule(&event.kind)).count();
            if activity_id.0 < first {
                return None;
            }
            let handle = self.slots.iter().filter(|slot| matches!(slot.command, Some(Command::ScheduleLocalActivity { .. }))).nth(number)?.handle?;
            self.locals_taken = index + 1;
            self.locals.remove(&handle);
            let command = self.slot_of(handle)?;
            for it in commands {
                self.ask(within(it, command), None);
            }
            let resolution = match end {
                Ok(output) => Resolution::Completed(output),
                Err((attempt, timeout)) => ended(failed.unwrap_or_else(|| Failure::engine("Error", "the failure is not recorded")), attempt, timeout),
            };
            return self.resolve(handle, resolution);
        }
        None
    }

    fn resolve(&mut self, handle: Handle, resolution: Resolution) -> Option<WaitKey> {
        let item = self.items.get_mut(&handle)?;
        match item.stage {
            Stage::Asked(_) => item.stage = Stage::Ended(resolution),
            Stage::Open { .. } | Stage::Ended(_) => {}
        }
        Some(WaitKey::Item(handle))
    }

    fn slot_of(&self, handle: Handle) -> Option<usize> {
        self.slots.iter().position(|slot| slot.handle == Some(handle))
    }

    /// The commands of the decision, as the server counts them: those that were dropped do not count.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let mut places = Vec::with_capacity(self.slots.len());
        let mut next = 0;
        for slot in &self.slots {
            places.push(next);
            next += usize::from(slot.command.is_some());
        }
        let place = |command: &Command| match slot_named_by(command) {
            Some(slot) => within(command.clone(), places.get(slot).copied().unwrap_or(usize::MAX)),
            None => command.clone(),
        };
        self.slots.iter().filter_map(|slot| slot.command.as_ref()).map(place).collect()
    }
}

fn ended(failure: Failure, attempt: Attempt, timeout: Option<ActivityTimeout>) -> Resolution {
    match timeout {
        Some(timeout) => Resolution::TimedOut { timeout, attempt },
        None => Resolution::Failed { failure, attempt: Some(attempt) },
    }
}

fn is_schedule(kind: &EventKind) -> bool {
    matches!(kind, EventKind::LocalActivityScheduled { .. })
}

/// The command that becomes this event; which activity it speaks of is for the caller to say.
fn as_command(kind: &EventKind) -> Option<Command> {
    Some(match kind {
        EventKind::LocalActivityCompleted { output, .. } => Command::CompleteLocalActivity { command: 0, output: output.clone() },
        EventKind::LocalActivityFailed { attempt, failure, .. } => Command::FailLocalActivity { command: 0, attempt: *attempt, failure: failure.clone() },
        EventKind::LocalActivityExhausted { attempt, timeout, .. } => Command::ExhaustLocalActivity { command: 0, attempt: *attempt, timeout: *timeout },
        _ => return None,
    })
}

fn slot_named_by(command: &Command) -> Option<usize> {
    match command {
        Command::CompleteLocalActivity { command, .. } | Command::FailLocalActivity { command, .. } | Command::ExhaustLocalActivity { command, .. } => {
            Some(*command)
        }
        _ => None,
    }
}

/// The same about the activity that another command scheduled.
fn within(it: Command, command: usize) -> Command {
    match it {
        Command::CompleteLocalActivity { output, .. } => Command::CompleteLocalActivity { command, output },
        Command::FailLocalActivity { attempt, failure, .. } => Command::FailLocalActivity { command, attempt, failure },
        Command::ExhaustLocalActivity { attempt, timeout, .. } => Command::ExhaustLocalActivity { command, attempt, timeout },
        other => other,
    }
}
