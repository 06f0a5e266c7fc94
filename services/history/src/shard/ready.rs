//! Tasks that wait for a worker, by queue: a bounded number in memory, the rest in the store.
//!
//! The truth is the task rows. What is in memory here are hints: an offer that is out of date is answered `Gone` when somebody takes it.

use super::neighbours::OfferKind;
use harvest_ids::{Namespace, TaskQueue};
use harvest_persistence::batch::{TaskId, TaskRow};
use harvest_persistence::store::{BacklogQueue, TaskKind};
use harvest_workflow_core::projection::TaskKey;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Most tasks of one queue and kind that wait in memory without being offered.
const MAX_WAITING: usize = 1000;
/// After how long an offer that nobody took is made again.
const OFFER_AGAIN: Duration = Duration::from_secs(15);

/// One queue's tasks of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    pub(crate) namespace: Namespace,
    pub(crate) queue: TaskQueue,
    pub(crate) kind: OfferKind,
}

impl QueueKey {
    fn of(row: &TaskRow) -> Self {
        let kind = match row.task.key {
            TaskKey::Workflow => OfferKind::Workflow,
            TaskKey::Activity(_) => OfferKind::Activity,
        };
        Self { namespace: row.namespace.clone(), queue: row.queue.clone(), kind }
    }

    pub(crate) fn backlog(&self) -> BacklogQueue {
        let kind = match self.kind {
            OfferKind::Activity => TaskKind::Activity,
            OfferKind::Workflow | OfferKind::Query => TaskKind::Workflow,
        };
        BacklogQueue { namespace: self.namespace.clone(), queue: self.queue.clone(), kind }
    }

    fn from_backlog(queue: &BacklogQueue) -> Self {
        let kind = match queue.kind {
            TaskKind::Workflow => OfferKind::Workflow,
            TaskKind::Activity => OfferKind::Activity,
        };
        Self { namespace: queue.namespace.clone(), queue: queue.queue.clone(), kind }
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// By sequence: oldest first.
    waiting: BTreeMap<i64, TaskId>,
    offered: HashMap<TaskId, (i64, Duration)>,
    /// Tasks above this sequence may be in the store only.
    spilled_after: Option<i64>,
    /// A page is being read.
    reading: bool,
    /// A task was left to the store while a page was being read: the page may have missed it.
    missed: bool,
}

/// All queues of a shard.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queues: BTreeMap<QueueKey, Queue>,
    generation: u64,
}

impl Ready {
    /// A task waits for a worker.
    pub(crate) fn add(&mut self, row: &TaskRow) {
        let queue = self.queues.entry(QueueKey::of(row)).or_default();
        if queue.offered.contains_key(&row.task) {
            return;
        }
        if let Some(after) = queue.spilled_after
            && row.sequence > after
        {
            queue.missed |= queue.reading;
            return; // a page will bring it, in its turn
        }
        if queue.waiting.len() >= MAX_WAITING {
            let last = queue.waiting.last_key_value().map_or(row.sequence, |(sequence, _)| *sequence);
            queue.spilled_after = Some(last);
            return;
        }
        queue.waiting.insert(row.sequence, row.task);
    }

    /// An offered task was taken, or there was nothing to take.
    pub(crate) fn taken(&mut self, task: TaskId) {
        for queue in self.queues.values_mut() {
            if queue.offered.remove(&task).is_some() {
                return;
            }
        }
    }

    /// The store has pending tasks of this queue that are not in memory: all of them, from the oldest.
    pub(crate) fn add_backlog(&mut self, backlog: &BacklogQueue) {
        let queue = self.queues.entry(QueueKey::from_backlog(backlog)).or_default();
        queue.spilled_after = Some(0);
    }

    /// Queues of which a page should be read, with the sequence to read after. Each is answered by one `page`.
    pub(crate) fn wants_pages(&mut self) -> Vec<(QueueKey, i64)> {
        let hungry = self.queues.iter_mut().filter(|(_, queue)| !queue.reading && queue.waiting.len() < MAX_WAITING / 2);
        hungry
            .filter_map(|(key, queue)| {
                let after = queue.spilled_after?;
                queue.reading = true;
                queue.missed = false;
                Some((key.clone(), after))
            })
            .collect()
    }

    /// A page came: `None` when it could not be read.
    pub(crate) fn page(&mut self, key: &QueueKey, rows: Option<Vec<TaskRow>>, asked_for: usize) {
        let queue = self.queues.entry(key.clone()).or_default();
        queue.reading = false;
        let Some(rows) = rows else { return };
        let read_to = rows.last().map_or(queue.spilled_after, |row| Some(row.sequence));
        queue.spilled_after = if rows.len() < asked_for && !queue.missed { None } else { read_to };
        for row in rows {
            if !queue.offered.contains_key(&row.task) {
                queue.waiting.insert(row.sequence, row.task);
            }
        }
    }

    /// Tasks to offer now, oldest first: as many as the window allows. All of them again when the generation of offers has changed.
    pub(crate) fn to_offer(&mut self, window: usize, generation: u64, now: Duration) -> Vec<(QueueKey, i64, TaskId)> {
        if generation != self.generation {
            self.generation = generation;
            for queue in self.queues.values_mut() {
                for (task, (sequence, _)) in queue.offered.drain() {
                    queue.waiting.insert(sequence, task);
                }
            }
        }
        let mut offers = Vec::new();
        for (key, queue) in &mut self.queues {
            for (task, (sequence, at)) in &mut queue.offered {
                if now.saturating_sub(*at) >= OFFER_AGAIN {
                    *at = now;
                    offers.push((key.clone(), *sequence, *task));
                }
            }
            while queue.offered.len() < window
                && let Some((sequence, task)) = queue.waiting.pop_first()
            {
                queue.offered.insert(task, (sequence, now));
                offers.push((key.clone(), sequence, task));
            }
        }
        offers
    }

    /// Nobody could be told of an offer: it waits again.
    pub(crate) fn not_offered(&mut self, key: &QueueKey, sequence: i64, task: TaskId) {
        let queue = self.queues.entry(key.clone()).or_default();
        queue.offered.remove(&task);
        queue.waiting.insert(sequence, task);
    }

    /// Forgets queues with nothing in them, so that made-up queue names do not stay.
    pub(crate) fn sweep(&mut self) {
        self.queues.retain(|_, queue| !queue.waiting.is_empty() || !queue.offered.is_empty() || queue.spilled_after.is_some() || queue.reading);
    }
}
