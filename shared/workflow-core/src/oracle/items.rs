//! The oracle's books of timers, children and signals.

use super::{Verdict, rule};
use crate::event::ChildWorkflow;
use harvest_ids::{EventId, ExecutionId, TimerName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Timers by the event that started them.
#[derive(Default)]
pub(super) struct Timers {
    all: BTreeMap<EventId, (TimerName, Timestamp)>,
    open: BTreeSet<(Timestamp, EventId)>,
}

impl Timers {
    pub(super) fn started(&mut self, id: EventId, name: &TimerName, deadline: Timestamp) -> Verdict {
        self.all.insert(id, (name.clone(), deadline));
        self.open.insert((deadline, id));
        Ok(())
    }

    pub(super) fn fired(&mut self, id: EventId, name: &TimerName, at: Timestamp) -> Verdict {
        let (known, deadline) = self.all.get(&id).ok_or_else(|| format!("event {id} started no timer"))?;
        rule(known == name, || format!("timer {id} is called {known}, not {name}"))?;
        rule(at >= *deadline, || format!("timer {id} fired at {at}, before its deadline {deadline}"))?;
        rule(self.open.first().is_none_or(|first| *first >= (*deadline, id)), || format!("timer {id} fired before one with an earlier deadline"))?;
        rule(self.open.remove(&(*deadline, id)), || format!("timer {id} fired after it had ended"))
    }

    pub(super) fn cancelled(&mut self, id: EventId, name: &TimerName) -> Verdict {
        let (known, deadline) = self.all.get(&id).ok_or_else(|| format!("event {id} started no timer"))?;
        self.open.remove(&(*deadline, id));
        rule(known == name, || format!("timer {id} is called {known}, not {name}"))
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.open.first().map(|(deadline, _)| *deadline)
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }
}

/// Children by the event that started them, and whether their outcome is still awaited.
#[derive(Default)]
pub(super) struct Children {
    awaited: BTreeMap<EventId, bool>,
    ids: BTreeSet<ExecutionId>,
}

impl Children {
    pub(super) fn started(&mut self, id: EventId, child: &ChildWorkflow, awaited: bool) -> Verdict {
        self.awaited.insert(id, awaited);
        rule(self.ids.insert(child.execution_id), || format!("child {} was started twice", child.execution_id))
    }

    pub(super) fn ended(&mut self, id: EventId) -> Verdict {
        let awaited = self.awaited.get_mut(&id).ok_or_else(|| format!("event {id} started no child"))?;
        rule(std::mem::take(awaited), || format!("child {id} ended twice, or nobody awaits it"))
    }

    pub(super) fn known(&self, id: EventId) -> Verdict {
        rule(self.awaited.contains_key(&id), || format!("event {id} started no child"))
    }

    pub(super) fn open(&self) -> usize {
        self.awaited.values().filter(|awaited| **awaited).count()
    }
}

/// Signals that were not taken.
#[derive(Default)]
pub(super) struct Signals {
    unread: BTreeSet<EventId>,
}

impl Signals {
    pub(super) fn received(&mut self, event: EventId) {
        self.unread.insert(event);
    }

    pub(super) fn consume(&mut self, taken: &[EventId], seen: EventId) -> Verdict {
        for id in taken {
            rule(*id <= seen, || format!("signal {id} was taken by a decision that had seen events up to {seen}"))?;
            rule(self.unread.remove(id), || format!("signal {id} was taken twice, or never arrived"))?;
        }
        Ok(())
    }

    pub(super) fn any_after(&self, seen: EventId) -> bool {
        self.unread.last().is_some_and(|id| *id > seen)
    }

    pub(super) fn unread(&self) -> Vec<EventId> {
        self.unread.iter().copied().collect()
    }
}
