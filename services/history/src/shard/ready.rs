//! Tasks that wait for a worker, by queue: a bounded number in memory, the rest in the store.
//!
//! The truth is the task rows. What is in memory here are hints: an offer that is out of date is answered `Gone` when somebody takes it.

use super::neighbours::OfferKind;
use harvest_ids::{Namespace, TaskQueue};
use harvest_persistence::batch::{TaskId, TaskRow};
use harvest_persistence::store::{BacklogQueue, TaskKind};
use harvest_workflow_core::projection::TaskKey;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

/// Most tasks of one queue and kind that wait in memory without being offered.
const MAX_WAITING: usize = 1000;
/// Most tasks of all queues that wait in memory, about: with more than a hundred queues each keeps less.
const MAX_WAITING_IN_ALL: usize = 100_000;
/// Most queues whose pages are read at a time.
const MAX_READING: usize = 16;
/// Most queues with pending tasks that runs may be started in; those that have some already are not counted anew.
const MAX_QUEUES: usize = 10_000;
/// After how long a queue whose offers nobody could be told of is tried again.
const REFUSED_FOR: Duration = Duration::from_millis(250);
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
    offered: BTreeMap<TaskId, (i64, Duration)>,
    /// Tasks above this sequence may be in the store only.
    spilled_after: Option<i64>,
    /// A page is being read.
    reading: bool,
    /// The oldest task that was left to the store while a page was being read: the page may have missed it.
    missed: Option<i64>,
    /// The youngest task that has been heard of.
    youngest: i64,
    /// The same when the page that is being read was asked for: it misses none up to this one.
    known_to: i64,
    /// No matching process could be told of an offer: none is made before this.
    refused_until: Option<Duration>,
}

impl Queue {
    /// A task is left to the store, and with it all younger ones that are not in memory.
    fn spill(&mut self, sequence: i64) {
        let before = sequence - 1;
        self.spilled_after = Some(self.spilled_after.map_or(before, |after| after.min(before)));
        if self.reading {
            self.missed = Some(self.missed.map_or(sequence, |missed| missed.min(sequence)));
        }
    }

    fn add(&mut self, sequence: i64, task: TaskId, most: usize) {
        self.youngest = self.youngest.max(sequence);
        if self.spilled_after.is_some_and(|after| sequence > after) {
            self.spill_younger(sequence);
            return;
        }
        self.waiting.insert(sequence, task);
        // An old task that is ready again goes before younger ones: those come back by a page.
        if self.waiting.len() > most
            && let Some((youngest, _)) = self.waiting.pop_last()
        {
            self.spill(youngest);
        }
    }

    /// A task beyond those in memory: a page will bring it, in its turn. A run says with each of its commits which of its tasks are ready, old ones
    /// too: going back for those would read the same page over and over.
    fn spill_younger(&mut self, sequence: i64) {
        if self.reading && sequence > self.known_to {
            self.missed = Some(self.missed.map_or(sequence, |missed| missed.min(sequence)));
        }
    }

    fn page(&mut self, mut rows: Vec<TaskRow>, asked_for: usize, taken: &BTreeSet<TaskId>, most: usize) {
        // A page fits a queue that may keep the most; with more queues it is cut, and the rest is read again.
        let room = if most < MAX_WAITING { most.saturating_sub(self.waiting.len()).max(1) } else { usize::MAX };
        let all = rows.len() < asked_for && rows.len() <= room;
        rows.truncate(room);
        let read_to = rows.last().map(|row| row.sequence).or(self.spilled_after);
        self.youngest = self.youngest.max(read_to.unwrap_or(0));
        self.spilled_after = match self.missed.take() {
            Some(missed) => read_to.map(|read_to| read_to.min(missed - 1)),
            None if all => None,
            None => read_to,
        };
        for row in rows {
            if !self.offered.contains_key(&row.task) && !taken.contains(&row.task) {
                self.waiting.insert(row.sequence, row.task);
            }
        }
    }
}

/// All queues of a shard.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queues: BTreeMap<QueueKey, Queue>,
    generation: u64,
    /// How many queues are being read, and the last one that was begun with: each has its turn.
    reading: usize,
    read_last: Option<QueueKey>,
}

impl Ready {
    /// A task waits for a worker.
    pub(crate) fn add(&mut self, row: &TaskRow) {
        let most = self.most_of_a_queue();
        let queue = self.queues.entry(QueueKey::of(row)).or_default();
        if !queue.offered.contains_key(&row.task) {
            queue.add(row.sequence, row.task, most);
        }
    }

    /// Most tasks of one queue that wait in memory, with as many queues as there are now.
    fn most_of_a_queue(&self) -> usize {
        (MAX_WAITING_IN_ALL / self.queues.len().max(1)).clamp(1, MAX_WAITING)
    }

    /// Whether a run may be started that waits in this queue.
    pub(crate) fn has_room_for(&self, namespace: &Namespace, queue: &TaskQueue) -> bool {
        let known = || self.queues.contains_key(&QueueKey { namespace: namespace.clone(), queue: queue.clone(), kind: OfferKind::Workflow });
        self.queues.len() < MAX_QUEUES || known()
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
        self.queues.entry(QueueKey::from_backlog(backlog)).or_default().spill(1);
    }

    /// Queues of which a page should be read, with the sequence to read after. Each is answered by one `page`.
    pub(crate) fn wants_pages(&mut self) -> Vec<(QueueKey, i64)> {
        let (enough, room) = (self.most_of_a_queue().div_ceil(2), MAX_READING.saturating_sub(self.reading));
        let hungry = |(key, queue): (&QueueKey, &Queue)| (!queue.reading && queue.spilled_after.is_some() && queue.waiting.len() < enough).then(|| key.clone());
        if room == 0 {
            return Vec::new();
        }
        let begin = self.read_last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let (later, all) = (self.queues.range((begin, Bound::Unbounded)), self.queues.iter());
        let mut keys: Vec<QueueKey> = later.filter_map(hungry).take(room).collect();
        if keys.len() < room {
            let missing = room - keys.len();
            let earlier: Vec<QueueKey> = all.filter_map(hungry).take(room).filter(|key| !keys.contains(key)).take(missing).collect();
            keys.extend(earlier);
        }
        self.reading += keys.len();
        self.read_last = keys.last().cloned().or(self.read_last.take());
        let begun = keys.into_iter().filter_map(|key| {
            let queue = self.queues.get_mut(&key)?;
            queue.reading = true;
            queue.missed = None;
            queue.known_to = queue.youngest;
            Some((key, queue.spilled_after?))
        });
        begun.collect()
    }

    /// A page came: `None` when it could not be read. Tasks that workers have are left out.
    pub(crate) fn page(&mut self, key: &QueueKey, rows: Option<Vec<TaskRow>>, asked_for: usize, taken: &BTreeSet<TaskId>) {
        self.reading = self.reading.saturating_sub(1);
        let most = self.most_of_a_queue();
        let queue = self.queues.entry(key.clone()).or_default();
        queue.reading = false;
        if let Some(rows) = rows {
            queue.page(rows, asked_for, taken, most);
        }
    }

    /// Tasks to offer now, oldest first: as many as the window allows. All of them again when the generation of offers has changed.
    pub(crate) fn take_offers(&mut self, window: usize, generation: u64, now: Duration) -> Vec<(QueueKey, i64, TaskId)> {
        if generation != self.generation {
            self.generation = generation;
            for queue in self.queues.values_mut() {
                queue.refused_until = None;
                let offered = std::mem::take(&mut queue.offered);
                queue.waiting.extend(offered.into_iter().map(|(task, (sequence, _))| (sequence, task)));
            }
        }
        let most = self.most_of_a_queue();
        let window = if most < MAX_WAITING { window.min(most) } else { window };
        let mut offers = Vec::new();
        for (key, queue) in self.queues.iter_mut().filter(|(_, queue)| queue.refused_until.is_none_or(|until| until <= now)) {
            while queue.offered.len() < window
                && let Some((sequence, task)) = queue.waiting.pop_first()
            {
                queue.offered.insert(task, (sequence, now));
                offers.push((key.clone(), sequence, task));
            }
        }
        offers
    }

    /// Whether nobody could be told of an offer of this queue just now.
    pub(crate) fn is_refused(&self, key: &QueueKey, now: Duration) -> bool {
        self.queues.get(key).and_then(|queue| queue.refused_until).is_some_and(|until| until > now)
    }

    /// Nobody could be told of an offer: it waits again.
    pub(crate) fn not_offered(&mut self, key: &QueueKey, sequence: i64, task: TaskId, now: Duration) {
        let queue = self.queues.entry(key.clone()).or_default();
        queue.offered.remove(&task);
        queue.waiting.insert(sequence, task);
        queue.refused_until = Some(now + REFUSED_FOR);
    }

    /// Offers that nobody took for long wait again. Queues with nothing in them are forgotten, so that made-up queue names do not stay.
    pub(crate) fn sweep(&mut self, now: Duration) {
        for queue in self.queues.values_mut() {
            let old: Vec<TaskId> = queue.offered.iter().filter(|(_, (_, at))| now.saturating_sub(*at) >= OFFER_AGAIN).map(|(task, _)| *task).collect();
            for task in old {
                if let Some((sequence, _)) = queue.offered.remove(&task) {
                    queue.waiting.insert(sequence, task);
                }
            }
        }
        self.queues.retain(|_, queue| !queue.waiting.is_empty() || !queue.offered.is_empty() || queue.spilled_after.is_some() || queue.reading);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_ids::{ExecutionId, Slot, Timestamp};

    fn row(sequence: i64) -> TaskRow {
        let execution_id = ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(0), u64::try_from(sequence).unwrap());
        TaskRow { task: TaskId { execution_id, key: TaskKey::Workflow }, sequence, namespace: Namespace::default(), queue: TaskQueue::default() }
    }

    fn offered(ready: &mut Ready, window: usize) -> Vec<i64> {
        ready.take_offers(window, 0, Duration::ZERO).into_iter().map(|(_, sequence, _)| sequence).collect()
    }

    #[test]
    fn an_old_task_that_is_ready_again_is_not_lost_when_memory_is_full_and_goes_first() {
        let mut ready = Ready::default();
        (11..=2000).for_each(|sequence| ready.add(&row(sequence)));
        ready.add(&row(5));
        let all = offered(&mut ready, usize::MAX);
        assert_eq!((all[0], all.len()), (5, MAX_WAITING));
        let [(key, after)] = &ready.wants_pages()[..] else { panic!("no page is wanted") };
        assert_eq!(*after, *all.last().unwrap(), "what made room comes back by a page");
        ready.page(&key.clone(), Some((*after + 1..*after + 11).map(row).collect()), 10, &BTreeSet::new());
        assert_eq!(offered(&mut ready, usize::MAX), (*after + 1..*after + 11).collect::<Vec<_>>());
    }

    #[test]
    fn tasks_that_are_said_to_be_ready_once_more_do_not_have_a_page_read_again() {
        let mut ready = Ready::default();
        (1..=3000).for_each(|sequence| ready.add(&row(sequence)));
        assert_eq!(offered(&mut ready, 600).len(), 600);
        let [(key, after)] = &ready.wants_pages()[..] else { panic!("no page is wanted") };
        let (key, after) = (key.clone(), *after);
        ready.add(&row(after + 100)); // its run has committed something else
        ready.add(&row(3001));
        let page: Vec<TaskRow> = (after + 1..=after + 500).map(row).collect();
        ready.page(&key, Some(page), 500, &BTreeSet::new());
        (1..=600).for_each(|sequence| ready.taken(row(sequence).task));
        assert_eq!(offered(&mut ready, 600).len(), 600);
        assert_eq!(ready.wants_pages(), [(key.clone(), after + 500)]);
        ready.page(&key, Some((after + 501..=3001).map(row).collect()), 5000, &BTreeSet::new());
        (1..=3001).for_each(|sequence| ready.taken(row(sequence).task));
        assert_eq!(offered(&mut ready, usize::MAX).last(), Some(&3001));
    }

    #[test]
    fn many_queues_keep_little_each_and_are_read_in_turn_and_nothing_is_lost() {
        let (queues, tasks) = (150, 520);
        let row_of = |queue: i64, number: i64| TaskRow { queue: TaskQueue::new(format!("q-{queue}")).unwrap(), ..row(queue * 1_000 + number) };
        let mut ready = Ready::default();
        for queue in 0..queues {
            ready.add_backlog(&QueueKey::of(&row_of(queue, 1)).backlog());
        }
        let mut seen = BTreeSet::new();
        let mut idle = 0;
        while idle < 2 {
            let wanted = ready.wants_pages();
            assert!(wanted.len() <= MAX_READING);
            for (key, after) in wanted {
                let queue: i64 = key.queue.as_str()[2..].parse().unwrap();
                let rows: Vec<TaskRow> = (1..=tasks).filter(|number| queue * 1_000 + number > after).take(500).map(|number| row_of(queue, number)).collect();
                ready.page(&key, Some(rows), 500, &BTreeSet::new());
            }
            assert!(ready.queues.values().map(|queue| queue.waiting.len()).sum::<usize>() <= MAX_WAITING_IN_ALL);
            let offers = ready.take_offers(50, 0, Duration::ZERO);
            idle = if offers.is_empty() { idle + 1 } else { 0 };
            for (_, sequence, task) in offers {
                assert!(seen.insert(sequence), "offered twice");
                ready.taken(task);
            }
        }
        assert_eq!(seen.len(), usize::try_from(queues * tasks).unwrap());
        assert_eq!(ready.reading, 0);
    }

    #[test]
    fn what_a_page_may_have_missed_is_read_again() {
        let mut ready = Ready::default();
        let backlog = QueueKey::of(&row(1)).backlog();
        ready.add_backlog(&backlog);
        let key = ready.wants_pages().remove(0).0;
        ready.add(&row(7)); // commits after the page was read
        ready.page(&key, Some(vec![row(3), row(4)]), 500, &BTreeSet::new());
        assert_eq!(offered(&mut ready, usize::MAX), [3, 4]);
        assert_eq!(ready.wants_pages(), [(key.clone(), 4)]);
        ready.add_backlog(&backlog); // all of it, while a page is being read
        ready.page(&key, Some(vec![row(7)]), 500, &BTreeSet::new());
        assert_eq!(ready.wants_pages(), [(key, 0)]);
    }
}
