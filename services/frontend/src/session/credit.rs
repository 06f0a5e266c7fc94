//! Room for tasks, by queue and kind.

use harvest_proto::v1;
use harvest_proto::v1::server_message::Message;
use std::collections::BTreeMap;

/// Unspent credit of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Room {
    pub(super) workflow: u32,
    pub(super) activity: u32,
}

impl Room {
    fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(super) fn plus(self, more: Self) -> Self {
        Self { workflow: self.workflow.saturating_add(more.workflow), activity: self.activity.saturating_add(more.activity) }
    }
}

/// Unspent credit by queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Credits(BTreeMap<String, Room>);

impl Credits {
    /// Adds credit; returns what the queue has now.
    pub(super) fn add(&mut self, queue: &str, room: Room) -> Room {
        let now = self.0.entry(queue.to_owned()).or_default();
        *now = now.plus(room);
        *now
    }

    /// What a queue has.
    pub(super) fn get(&self, queue: &str) -> Room {
        self.0.get(queue).copied().unwrap_or_default()
    }

    /// Takes one queue's credit out.
    pub(super) fn pop(&mut self) -> Option<(String, Room)> {
        loop {
            let (queue, room) = self.0.pop_first()?;
            if !room.is_empty() {
                return Some((queue, room));
            }
        }
    }

    /// Uses the credit of a task that goes to the worker. False when the task names no queue with credit.
    pub(super) fn spend(&mut self, task: &Message) -> bool {
        let (queue, kind): (Option<&str>, fn(&mut Room) -> &mut u32) = match task {
            Message::WorkflowTask(it) => (it.workflow.as_ref().map(|workflow| workflow.task_queue.as_str()), |room| &mut room.workflow),
            Message::QueryTask(it) => (it.workflow.as_ref().map(|workflow| workflow.task_queue.as_str()), |room| &mut room.workflow),
            Message::ActivityTask(it) => (Some(it.task_queue.as_str()), |room| &mut room.activity),
            Message::Welcome(_) | Message::AnnounceReply(_) | Message::Drained(_) => return true,
        };
        let Some(left) = queue.and_then(|queue| self.0.get_mut(queue)).map(kind) else { return false };
        let had = *left > 0;
        *left = left.saturating_sub(1);
        had
    }

    /// Voids everything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl From<&v1::Credit> for Room {
    fn from(credit: &v1::Credit) -> Self {
        Self { workflow: credit.workflow_tasks, activity: credit.activity_tasks }
    }
}
