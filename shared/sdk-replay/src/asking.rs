//! What workflow code asks for and looks at while it runs.

use crate::error::ReplayError;
use crate::inbox::{Signal, Take};
use crate::item::{Handle, Item, ItemKind, Resolution, Stage, WaitKey};
use crate::machine::{Current, Machine, Recorded, Slot};
use crate::matching::describe_side_effect;
use harvest_ids::{DurationMs, SignalName, TimerName};
use harvest_workflow_core::command::{Command, ScheduleActivity, StartChildWorkflow};
use harvest_workflow_core::event::{EventKind, SideEffectKind};
use harvest_workflow_core::payload::Payload;

impl Machine {
    pub(crate) fn ask(&mut self, command: Command, handle: Option<Handle>) -> usize {
        if self.slots.len() >= self.max_commands && self.failure.is_none() {
            self.failure = Some(ReplayError::TooManyCommands { allowed: self.max_commands });
        }
        if self.failure.is_none() && !self.closed {
            self.slots.push(Slot { command: Some(command), handle });
        }
        self.slots.len().saturating_sub(1)
    }

    pub(crate) fn ask_item(&mut self, kind: ItemKind, command: Command) -> Handle {
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        let index = self.ask(command, Some(handle));
        self.items.insert(handle, Item { kind, stage: Stage::Asked(index), abandoned: false });
        handle
    }

    /// The code wants an activity.
    pub fn schedule_activity(&mut self, activity: ScheduleActivity) -> Handle {
        self.ask_item(ItemKind::Activity, Command::ScheduleActivity(Box::new(activity)))
    }

    /// The code wants a child run. A detached one is never resolved: do not wait for it.
    pub fn start_child_workflow(&mut self, child: StartChildWorkflow) -> Handle {
        let kind = if child.detached { ItemKind::Detached } else { ItemKind::Child };
        self.ask_item(kind, Command::StartChildWorkflow(child))
    }

    /// The code wants a timer; `None` when it has one of that name already.
    pub fn start_timer(&mut self, timer_id: TimerName, duration: DurationMs) -> Option<Handle> {
        if !self.open_timers.insert(timer_id.clone()) {
            return None;
        }
        Some(self.ask_item(ItemKind::Timer(timer_id.clone()), Command::StartTimer { timer_id, duration }))
    }

    /// The code no longer wants an activity, timer or child. What was asked for in the same decision is never sent. A timer ends at once;
    /// an activity or child that is running ends when it has stopped. Returns what to wake.
    pub fn cancel(&mut self, handle: Handle) -> Option<WaitKey> {
        if self.closed {
            return None;
        }
        let item = self.items.get(&handle)?;
        let event = match item.stage {
            Stage::Ended(_) | Stage::Open { cancel_requested: true, .. } => return None,
            Stage::Asked(_) if item.kind == ItemKind::Local => {
                self.locals.remove(&handle); // its schedule stays on record, without an end
                return self.end_now(handle);
            }
            Stage::Asked(index) => {
                if let Some(slot) = self.slots.get_mut(index) {
                    *slot = Slot { command: None, handle: None };
                }
                return self.end_now(handle);
            }
            Stage::Open { event, cancel_requested: false } => event,
        };
        match item.kind {
            ItemKind::Timer(_) => {
                self.ask(Command::CancelTimer { started: event }, None);
                self.by_event.remove(&event);
                return self.end_now(handle);
            }
            // It ends within its decision: it is never open.
            ItemKind::Local => return None,
            ItemKind::Activity => self.ask(Command::CancelActivity { activity_id: event }, None),
            ItemKind::Child | ItemKind::Detached => self.ask(Command::CancelChildWorkflow { started: event }, None),
        };
        if let Some(item) = self.items.get_mut(&handle) {
            item.stage = Stage::Open { event, cancel_requested: true };
        }
        None
    }

    pub(crate) fn end_now(&mut self, handle: Handle) -> Option<WaitKey> {
        let item = self.items.get_mut(&handle)?;
        if let ItemKind::Timer(name) = &item.kind {
            self.open_timers.remove(name);
        }
        item.stage = Stage::Ended(Resolution::Cancelled);
        Some(WaitKey::Item(handle))
    }

    /// The future that waited is gone: a timer is cancelled, an activity or child runs on and its end is dropped.
    pub fn abandon(&mut self, handle: Handle) {
        if self.closed {
            return;
        }
        let Some(item) = self.items.get_mut(&handle) else { return };
        match (&item.kind, &item.stage) {
            (_, Stage::Ended(_)) => {
                self.items.remove(&handle);
            }
            (ItemKind::Timer(_) | ItemKind::Local, Stage::Asked(_) | Stage::Open { .. }) => {
                let _nobody_waits = self.cancel(handle);
                self.items.remove(&handle);
            }
            (ItemKind::Activity | ItemKind::Child | ItemKind::Detached, Stage::Asked(_) | Stage::Open { .. }) => item.abandoned = true,
        }
    }

    /// How an item ended, once: it is forgotten with that.
    pub fn take(&mut self, handle: Handle) -> Option<Resolution> {
        match self.items.get(&handle)?.stage {
            Stage::Ended(_) => {}
            Stage::Asked(_) | Stage::Open { .. } => return None,
        }
        match self.items.remove(&handle)?.stage {
            Stage::Ended(resolution) => Some(resolution),
            Stage::Asked(_) | Stage::Open { .. } => None,
        }
    }

    /// Takes the oldest unread signal of a name.
    pub fn take_signal(&mut self, name: &SignalName, take: Take) -> Option<Signal> {
        if self.closed || self.failure.is_some() {
            return None;
        }
        let signal = self.inbox.take(name, self.reached, take)?;
        self.consumed_signals.push(signal.event_id);
        Some(signal)
    }

    /// How many signals of a name the decision has seen and the code has not taken.
    pub fn unread_signals(&self, name: &SignalName) -> usize {
        self.inbox.count(name)
    }

    /// Why somebody asked the run to cancel itself. `Take::InOrder` is for who waits, `Take::All` for who looks.
    pub fn cancel_requested(&self, take: Take) -> Option<&str> {
        let (event, reason) = self.cancel.as_ref()?;
        (take == Take::All || *event <= self.reached).then_some(reason)
    }

    /// What the history says about the side effect that the code takes now. A custom one has one value per name and run.
    pub fn side_effect(&mut self, kind: SideEffectKind, name: Option<&str>) -> Recorded {
        if self.failure.is_some() {
            return Recorded::Diverged;
        }
        if let Some(value) = name.filter(|_| kind == SideEffectKind::Custom).and_then(|name| self.named_values.get(name)) {
            return Recorded::Value(value.clone());
        }
        let Current::Replayed(decision) = &self.current else { return Recorded::Fresh };
        let asked = describe_side_effect(kind, name);
        let next = decision.commands.iter().enumerate().skip(self.side_effects_taken);
        let found = next.filter_map(|(index, event)| match &event.kind {
            EventKind::SideEffectRecorded { kind, name, value } => Some((index, event.id, *kind, name.clone(), value.clone())),
            _ => None,
        });
        match found.into_iter().next() {
            Some((index, _, found_kind, found_name, value)) if found_kind == kind && found_name.as_deref() == name => {
                self.side_effects_taken = index + 1;
                self.record_side_effect(kind, name, value.clone());
                Recorded::Value(value)
            }
            Some((_, event_id, found_kind, found_name, _)) => {
                let expected = describe_side_effect(found_kind, found_name.as_deref());
                self.diverge(event_id, expected, asked);
                Recorded::Diverged
            }
            None => {
                let id = decision.id;
                self.diverge(id, "no further side effect in this decision".to_owned(), asked);
                Recorded::Diverged
            }
        }
    }

    /// What the history says about a reading of the clock that the SDK takes for itself under a name of its own. `None` where a recorded decision
    /// has none next: it was made before there were such readings. Nothing of the author's is taken for it then, and nothing is recorded.
    pub fn reading(&mut self, name: &str) -> Option<Recorded> {
        let Current::Replayed(decision) = &self.current else { return Some(Recorded::Fresh) };
        let next = decision.commands.iter().skip(self.side_effects_taken).find_map(|event| match &event.kind {
            EventKind::SideEffectRecorded { kind, name, .. } => Some((*kind, name.as_deref())),
            _ => None,
        });
        (next == Some((SideEffectKind::Now, Some(name)))).then(|| self.side_effect(SideEffectKind::Now, Some(name)))
    }

    /// Notes a value that the code took from outside.
    pub fn record_side_effect(&mut self, kind: SideEffectKind, name: Option<&str>, value: Payload) {
        if kind == SideEffectKind::Custom
            && let Some(name) = name
        {
            self.named_values.insert(name.to_owned(), value.clone());
        }
        self.ask(Command::RecordSideEffect { kind, name: name.map(str::to_owned), value }, None);
    }

    /// Notes a marker of the SDK.
    pub fn record_marker(&mut self, name: &str, details: Option<Payload>) {
        self.markers.insert(name.to_owned(), details.clone());
        self.ask(Command::RecordMarker { name: name.to_owned(), details }, None);
    }

    /// The code has ended: its terminal command is the last one that counts.
    pub fn finish(&mut self, terminal: Command) {
        self.ask(terminal, None);
        self.closed = true;
    }

    /// The code is about to be dropped unfinished (evicted from a cache): what its destructors ask for does not count.
    pub fn detach(&mut self) {
        self.closed = true;
    }
}
