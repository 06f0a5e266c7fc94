//! How much a worker takes: credits granted to the server, task by task, and places that it keeps for what it asks for itself.
//!
//! A place is running a task, granted to the server, or kept. Of a kind that the worker asks for itself at most a window is granted, so that
//! others stay for tasks that come with replies: activities with that to a decision, workflow tasks with that to a start. As tasks use up the
//! window it is filled again from what is kept, down to the last place. So a worker never runs more than it has places for, and one that gets its
//! tasks by the stream alone can use all of them.

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
    /// Taken by running tasks, or by what the worker has asked for.
    running: u32,
    /// Granted to the server, and no task has come for it yet.
    granted: u32,
    /// Most that is granted at a time.
    window: u32,
}

impl Pool {
    fn new(capacity: u32, window: u32) -> Self {
        Self { capacity, running: 0, granted: 0, window }
    }

    /// Places that nobody has.
    fn kept(self) -> u32 {
        self.capacity.saturating_sub(self.running).saturating_sub(self.granted)
    }

    /// What the server should get now.
    fn owed(self) -> u32 {
        self.kept().min(self.window.saturating_sub(self.granted))
    }

    /// Few grants are outstanding, or enough have gathered to be worth a message.
    fn wants_to_send(self) -> bool {
        let owed = self.owed();
        owed > 0 && (self.granted < self.window.div_ceil(2) || owed.saturating_mul(4) >= self.window)
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

/// Of which kinds the worker may ask for tasks itself, so that not all places for them are granted at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Keeps {
    pub(crate) workflows: bool,
    pub(crate) activities: bool,
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

impl Place {
    /// The queue whose task it is for.
    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }
}

impl Credits {
    /// All places are free, and no session is open.
    pub(crate) fn new(config: &WorkerConfig, keeps: Keeps) -> Self {
        let queues = u32::try_from(config.queues.len()).unwrap_or(1).max(1);
        // Every queue gets at least one place of a kind that the worker serves at all.
        let share = |all: u32| if all == 0 { 0 } else { (all / queues).max(1) };
        let pool = |all: u32, keeps: bool| Pool::new(share(all), if keeps { (share(all) / 2).max(1) } else { share(all) });
        let pools = || QueuePools {
            workflow: pool(config.max_concurrent_workflows, keeps.workflows),
            activity: pool(config.max_concurrent_activities, keeps.activities),
        };
        let queues = config.queues.iter().map(|queue| (queue.clone(), pools())).collect();
        Self { state: Mutex::new(State { queues, sender: None }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session: free places are granted to it. What earlier sessions were granted is void.
    pub(crate) fn open(&self, sender: mpsc::Sender<WorkerMessage>) {
        let mut state = self.lock();
        state.void();
        state.sender = Some(sender);
        state.send(true);
    }

    /// The session is over, or no more tasks are wanted.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.void();
        state.sender = None;
    }

    /// Grants what could not be sent earlier.
    pub(crate) fn flush(&self) {
        self.lock().send(true);
    }

    /// A task has arrived.
    pub(crate) fn take(self: &Arc<Self>, queue: &str, kind: TaskKind) -> Place {
        let mut state = self.lock();
        if let Some(pools) = state.queues.get_mut(queue) {
            let pool = pools.pool(kind);
            pool.running += 1;
            pool.granted = pool.granted.saturating_sub(1);
        }
        state.send(false);
        drop(state);
        Place { credits: self.clone(), queue: queue.to_owned(), kind }
    }

    /// A place for a task that the worker asks for itself, when it keeps one of this queue.
    pub(crate) fn reserve(self: &Arc<Self>, queue: &str, kind: TaskKind) -> Option<Place> {
        let mut state = self.lock();
        let pool = state.queues.get_mut(queue)?.pool(kind);
        if pool.kept() == 0 || pool.window == pool.capacity {
            return None;
        }
        pool.running += 1;
        drop(state);
        Some(Place { credits: self.clone(), queue: queue.to_owned(), kind })
    }
}

impl State {
    /// Nothing is granted any more.
    fn void(&mut self) {
        for pools in self.queues.values_mut() {
            pools.workflow.granted = 0;
            pools.activity.granted = 0;
        }
    }

    /// Sends owed grants: all, or those that should not wait. What does not fit the stream's buffer stays owed.
    fn send(&mut self, all: bool) {
        let Some(sender) = &self.sender else { return };
        for (queue, pools) in &mut self.queues {
            let (workflow, activity) = (pools.workflow.owed(), pools.activity.owed());
            if !(pools.workflow.wants_to_send() || pools.activity.wants_to_send() || all) || (workflow == 0 && activity == 0) {
                continue;
            }
            let credit = Credit { task_queue: queue.clone(), workflow_tasks: workflow, activity_tasks: activity };
            if sender.try_send(WorkerMessage { message: Some(Message::Credit(credit)) }).is_ok() {
                pools.workflow.granted += workflow;
                pools.activity.granted += activity;
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
        }
        state.send(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVITIES: Keeps = Keeps { workflows: false, activities: true };

    fn granted(receiver: &mut mpsc::Receiver<WorkerMessage>) -> (u32, u32) {
        let mut sum = (0, 0);
        while let Ok(message) = receiver.try_recv() {
            if let Some(Message::Credit(credit)) = message.message {
                sum = (sum.0 + credit.workflow_tasks, sum.1 + credit.activity_tasks);
            }
        }
        sum
    }

    fn config(workflows: u32, activities: u32) -> WorkerConfig {
        WorkerConfig::default().with_max_concurrent_workflows(workflows).with_max_concurrent_activities(activities)
    }

    #[test]
    fn places_are_granted_once_and_again_when_their_tasks_end() {
        let credits = Arc::new(Credits::new(&config(4, 1), ACTIVITIES));
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
        let credits = Arc::new(Credits::new(&config(4, 0), ACTIVITIES));
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
        let credits = Arc::new(Credits::new(&WorkerConfig::default().with_queues(["a", "b"]), Keeps::default()));
        let (sender, mut receiver) = mpsc::channel(1);
        credits.open(sender);
        assert_eq!(granted(&mut receiver), (100, 100));
        credits.flush();
        assert_eq!(granted(&mut receiver), (100, 100));
        credits.flush();
        assert_eq!(granted(&mut receiver), (0, 0));
    }

    #[test]
    fn half_of_the_activity_places_are_kept_and_granted_as_the_others_are_used() {
        let credits = Arc::new(Credits::new(&config(1, 4), ACTIVITIES));
        let (sender, mut receiver) = mpsc::channel(16);
        credits.open(sender);
        assert_eq!(granted(&mut receiver), (1, 2));
        let _eager = credits.reserve("default", TaskKind::Activity).expect("two are kept");
        assert!(credits.reserve("elsewhere", TaskKind::Activity).is_none());
        let _first = credits.take("default", TaskKind::Activity);
        assert_eq!(granted(&mut receiver), (0, 1), "the window is filled again");
        assert!(credits.reserve("default", TaskKind::Activity).is_none(), "two run and two are granted");
    }

    #[test]
    fn the_only_place_is_granted_and_never_kept() {
        for config in [config(1, 1), config(1, 0), config(1, 3).with_queues(["default", "other", "third"])] {
            let credits = Arc::new(Credits::new(&config, Keeps { workflows: true, activities: true }));
            assert!(credits.reserve("default", TaskKind::Activity).is_none());
            assert!(credits.reserve("default", TaskKind::Workflow).is_none());
        }
    }

    #[test]
    fn half_of_the_workflow_places_are_kept_only_for_starts_in_the_process() {
        for (keeps, granted_first) in [(ACTIVITIES, 5), (Keeps { workflows: true, activities: false }, 2)] {
            let credits = Arc::new(Credits::new(&config(5, 0), keeps));
            let (sender, mut receiver) = mpsc::channel(16);
            credits.open(sender);
            assert_eq!(granted(&mut receiver), (granted_first, 0));
            let started: Vec<_> = (0..5).map_while(|_| credits.reserve("default", TaskKind::Workflow)).collect();
            assert_eq!(started.len(), 5 - usize::try_from(granted_first).unwrap());
        }
    }

    /// A server that spends its credit as it likes, and a worker that asks, ends and reconnects as it likes.
    struct World {
        credits: Arc<Credits>,
        receiver: mpsc::Receiver<WorkerMessage>,
        /// Credit that the server has, by kind.
        server: (u32, u32),
        workflows: Vec<Place>,
        activities: Vec<Place>,
        random: u64,
    }

    impl World {
        fn draw(&mut self, below: usize) -> usize {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.random >> 33).unwrap() % below
        }

        fn reconnect(&mut self, buffer: usize) {
            let (sender, receiver) = mpsc::channel(buffer);
            self.receiver = receiver;
            self.server = (0, 0);
            self.credits.open(sender);
        }

        fn hear(&mut self) {
            let (workflow, activity) = granted(&mut self.receiver);
            self.server = (self.server.0 + workflow, self.server.1 + activity);
        }

        fn spend(&mut self, kind: TaskKind) {
            let (credit, places) = match kind {
                TaskKind::Workflow => (&mut self.server.0, &mut self.workflows),
                TaskKind::Activity => (&mut self.server.1, &mut self.activities),
            };
            if *credit > 0 {
                *credit -= 1;
                places.push(self.credits.take("default", kind));
            }
        }

        fn step(&mut self) {
            match self.draw(16) {
                0..=2 => self.spend(TaskKind::Workflow),
                3..=5 => self.spend(TaskKind::Activity),
                6..=7 => self.activities.extend(self.credits.reserve("default", TaskKind::Activity)),
                8 => self.workflows.extend(self.credits.reserve("default", TaskKind::Workflow)),
                9..=11 if !self.activities.is_empty() => {
                    let index = self.draw(self.activities.len());
                    drop(self.activities.swap_remove(index));
                }
                12..=13 if !self.workflows.is_empty() => {
                    let index = self.draw(self.workflows.len());
                    drop(self.workflows.swap_remove(index));
                }
                14 => self.credits.flush(),
                15 if self.draw(8) == 0 => {
                    self.credits.close();
                    let buffer = 1 + self.draw(3);
                    self.reconnect(buffer);
                }
                _ => self.hear(),
            }
        }
    }

    fn count(places: &[Place]) -> u32 {
        u32::try_from(places.len()).unwrap()
    }

    #[test]
    fn never_more_runs_than_there_are_places_and_all_of_them_can_be_used() {
        for seed in 0..200_u64 {
            let (workflows, activities) = (1 + u32::try_from(seed % 5).unwrap(), u32::try_from(seed % 9).unwrap());
            let credits = Arc::new(Credits::new(&config(workflows, activities), Keeps { workflows: seed % 2 > 0, activities: seed % 3 > 0 }));
            let (_sender, receiver) = mpsc::channel(1);
            let mut world = World { credits, receiver, server: (0, 0), workflows: Vec::new(), activities: Vec::new(), random: seed };
            world.reconnect(2);
            for _ in 0..300 {
                world.step();
                assert!(count(&world.workflows) + world.server.0 <= workflows, "seed {seed}");
                assert!(count(&world.activities) + world.server.1 <= activities, "seed {seed}");
            }
            // Nothing ends any more, and the server gives all it may: every place is used.
            world.reconnect(2);
            for _ in 0..=workflows + activities {
                world.credits.flush();
                world.hear();
                world.spend(TaskKind::Workflow);
                world.spend(TaskKind::Activity);
            }
            assert_eq!((count(&world.workflows), count(&world.activities)), (workflows, activities), "seed {seed}");
        }
    }
}
