//! How much a worker takes: credits granted to the server, task by task.

use crate::worker::WorkerConfig;
use harvest_proto::v1::{Credit, WorkerMessage, worker_message::Message};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Which tasks a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// Workflow tasks and queries.
    Workflow,
    Activity,
}

/// Places of one kind for one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pool {
    /// All places.
    capacity: u32,
    /// Taken by running tasks.
    running: u32,
    /// Free, and not granted to the server yet.
    owed: u32,
}

impl Pool {
    /// Few grants are outstanding, or enough have gathered to be worth a message.
    fn wants_to_send(self) -> bool {
        let granted = self.capacity.saturating_sub(self.running).saturating_sub(self.owed);
        self.owed > 0 && (granted < self.capacity.div_ceil(2) || self.owed.saturating_mul(4) >= self.capacity)
    }
}

#[derive(Debug)]
struct QueuePools {
    workflow: Pool,
    activity: Pool,
}

impl QueuePools {
    fn pool(&mut self, kind: TaskKind) -> &mut Pool {
        match kind {
            TaskKind::Workflow => &mut self.workflow,
            TaskKind::Activity => &mut self.activity,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    queues: BTreeMap<String, QueuePools>,
    /// The stream of the session, while there is one that wants tasks.
    sender: Option<mpsc::Sender<WorkerMessage>>,
}

/// All pools of a worker.
#[derive(Debug)]
pub(crate) struct Credits {
    state: Mutex<State>,
}

/// A running task's place: free again when dropped.
pub(crate) struct Place {
    credits: Arc<Credits>,
    queue: String,
    kind: TaskKind,
}

impl Credits {
    pub(crate) fn new(config: &WorkerConfig) -> Self {
        let queues = u32::try_from(config.queues.len()).unwrap_or(1).max(1);
        // Every queue gets at least one place of a kind that the worker serves at all.
        let share = |all: u32| Pool { capacity: if all == 0 { 0 } else { (all / queues).max(1) }, running: 0, owed: 0 };
        let pools = || QueuePools { workflow: share(config.max_concurrent_workflows), activity: share(config.max_concurrent_activities) };
        let queues = config.queues.iter().map(|queue| (queue.clone(), pools())).collect();
        Self { state: Mutex::new(State { queues, sender: None }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session: all free places are granted to it. What earlier sessions were granted is void.
    pub(crate) fn open(&self, sender: mpsc::Sender<WorkerMessage>) {
        let mut state = self.lock();
        for pools in state.queues.values_mut() {
            for kind in [TaskKind::Workflow, TaskKind::Activity] {
                let pool = pools.pool(kind);
                pool.owed = pool.capacity.saturating_sub(pool.running);
            }
        }
        state.sender = Some(sender);
        state.send(true);
    }

    /// The session is over, or no more tasks are wanted.
    pub(crate) fn close(&self) {
        self.lock().sender = None;
    }

    /// Grants what could not be sent earlier.
    pub(crate) fn flush(&self) {
        self.lock().send(true);
    }

    /// A task has arrived.
    pub(crate) fn take(self: &Arc<Self>, queue: &str, kind: TaskKind) -> Place {
        if let Some(pools) = self.lock().queues.get_mut(queue) {
            pools.pool(kind).running += 1;
        }
        Place { credits: self.clone(), queue: queue.to_owned(), kind }
    }
}

impl State {
    /// Sends owed grants: all, or those that should not wait. What does not fit the stream's buffer stays owed.
    fn send(&mut self, all: bool) {
        let Some(sender) = &self.sender else { return };
        for (queue, pools) in &mut self.queues {
            if !(pools.workflow.wants_to_send() || pools.activity.wants_to_send() || all) || (pools.workflow.owed == 0 && pools.activity.owed == 0) {
                continue;
            }
            let credit = Credit { task_queue: queue.clone(), workflow_tasks: pools.workflow.owed, activity_tasks: pools.activity.owed };
            if sender.try_send(WorkerMessage { message: Some(Message::Credit(credit)) }).is_ok() {
                pools.workflow.owed = 0;
                pools.activity.owed = 0;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.credits.lock();
        if let Some(pools) = state.queues.get_mut(&self.queue) {
            let pool = pools.pool(self.kind);
            pool.running = pool.running.saturating_sub(1);
            pool.owed = (pool.owed + 1).min(pool.capacity.saturating_sub(pool.running));
        }
        state.send(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(receiver: &mut mpsc::Receiver<WorkerMessage>) -> (u32, u32) {
        let mut sum = (0, 0);
        while let Ok(message) = receiver.try_recv() {
            if let Some(Message::Credit(credit)) = message.message {
                sum = (sum.0 + credit.workflow_tasks, sum.1 + credit.activity_tasks);
            }
        }
        sum
    }

    #[test]
    fn places_are_granted_once_and_again_when_their_tasks_end() {
        let credits = Arc::new(Credits::new(&WorkerConfig::default().with_max_concurrent_workflows(4).with_max_concurrent_activities(1)));
        let (sender, mut receiver) = mpsc::channel(16);
        credits.open(sender);
        assert_eq!(granted(&mut receiver), (4, 1));
        let activity = credits.take("default", TaskKind::Activity);
        let places: Vec<_> = (0..4).map(|_| credits.take("default", TaskKind::Workflow)).collect();
        assert_eq!(granted(&mut receiver), (0, 0));
        drop(activity);
        assert_eq!(granted(&mut receiver), (0, 1));
        drop(places);
        credits.flush();
        assert_eq!(granted(&mut receiver), (4, 0));
    }

    #[test]
    fn a_new_session_is_granted_what_running_tasks_leave() {
        let credits = Arc::new(Credits::new(&WorkerConfig::default().with_max_concurrent_workflows(4).with_max_concurrent_activities(0)));
        let running = credits.take("default", TaskKind::Workflow);
        let (sender, mut receiver) = mpsc::channel(16);
        credits.open(sender);
        assert_eq!(granted(&mut receiver), (3, 0));
        credits.close();
        drop(running);
        assert_eq!(granted(&mut receiver), (0, 0));
    }

    #[test]
    fn grants_that_do_not_fit_the_buffer_are_sent_later() {
        let credits = Arc::new(Credits::new(&WorkerConfig::default().with_queues(["a", "b"])));
        let (sender, mut receiver) = mpsc::channel(1);
        credits.open(sender);
        assert_eq!(granted(&mut receiver), (100, 100));
        credits.flush();
        assert_eq!(granted(&mut receiver), (100, 100));
        credits.flush();
        assert_eq!(granted(&mut receiver), (0, 0));
    }
}
