//! The links of one session: which matching process has which of its queues, and who holds its credit.

use super::credit::{Credits, Room};
use super::link::{self, LinkEvent, Outbox};
use crate::edge::Edge;
use harvest_ids::{Namespace, TaskQueue, WorkerId};
use harvest_persistence::control::{Member, ServiceKind};
use harvest_proto::v1::server_message::Message;
use harvest_runtime::OwnedTask;
use harvest_shards::placement;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::mpsc;

struct Link {
    process_id: String,
    queues: BTreeSet<TaskQueue>,
    outbox: Arc<Outbox>,
    /// Aborted with the link.
    _task: OwnedTask<()>,
}

impl Drop for Link {
    /// Ends our side of the stream too: aborting the task alone leaves the request's side open, and the matching process would go on giving
    /// tasks to a worker that is gone.
    fn drop(&mut self) {
        self.outbox.close();
    }
}

/// The links of one session.
pub(super) struct Links {
    edge: Arc<Edge>,
    namespace: Namespace,
    worker_id: WorkerId,
    queues: BTreeSet<TaskQueue>,
    credits: Credits,
    links: BTreeMap<u64, Link>,
    next_number: u64,
    draining: bool,
    events: mpsc::Sender<LinkEvent>,
}

impl Links {
    pub(super) fn new(edge: Arc<Edge>, namespace: Namespace, worker_id: WorkerId, queues: BTreeSet<TaskQueue>, events: mpsc::Sender<LinkEvent>) -> Self {
        let (credits, links) = (Credits::default(), BTreeMap::new());
        Self { edge, namespace, worker_id, queues, credits, links, next_number: 0, draining: false, events }
    }

    /// Whether the session serves a queue.
    pub(super) fn serves(&self, queue: &str) -> bool {
        self.queues.iter().any(|served| served.as_str() == queue)
    }

    /// Takes credit from the worker and grants it where the queue lives. Returns what the queue has now.
    pub(super) fn credit(&mut self, queue: &str, room: Room) -> Room {
        if self.draining {
            return Room::default();
        }
        let now = self.credits.add(queue, room);
        let holder = self.links.values().find(|link| !link.outbox.is_closed() && link.queues.iter().any(|served| served.as_str() == queue));
        // Without a link just now the credit is granted with the next one.
        if let Some(link) = holder {
            link.outbox.grant(queue, room);
        }
        now
    }

    /// A task goes to the worker: its credit is used.
    pub(super) fn spent(&mut self, task: &Message) {
        if !self.credits.spend(task) && !self.draining {
            tracing::debug!(worker_id = %self.worker_id, "a task came without credit");
        }
    }

    /// No more tasks: voids all credit, and ends all links once each has brought what is on its way.
    pub(super) fn close(&mut self) {
        self.draining = true;
        self.credits.clear();
        self.links.values().for_each(|link| link.outbox.close());
    }

    /// Whether all links have ended.
    pub(super) fn are_over(&self) -> bool {
        self.links.is_empty()
    }

    /// Whether nothing comes any more, because that was asked for.
    pub(super) fn are_drained(&self) -> bool {
        self.draining && self.are_over()
    }

    /// A link has ended.
    pub(super) fn ended(&mut self, number: u64) {
        self.links.remove(&number);
    }

    /// Makes the links what the membership says. A link whose queues have changed is closed first and opened anew once it has ended, so that
    /// credit is never granted twice.
    pub(super) fn place(&mut self) {
        if self.draining {
            return;
        }
        let wanted = self.wanted();
        let moved = |link: &&Link| wanted.get(&link.process_id).is_none_or(|(_, queues)| *queues != link.queues);
        self.links.values().filter(moved).for_each(|link| link.outbox.close());
        for (member, queues) in wanted.into_values() {
            let busy = self.links.values().any(|link| !link.queues.is_disjoint(&queues));
            if !busy {
                self.open(member, queues);
            }
        }
    }

    fn wanted(&self) -> BTreeMap<String, (Member, BTreeSet<TaskQueue>)> {
        let mut wanted: BTreeMap<String, (Member, BTreeSet<TaskQueue>)> = BTreeMap::new();
        for queue in &self.queues {
            let placed = self.edge.router.directory().place(ServiceKind::Matching, &placement::task_queue(&self.namespace, queue));
            if let Some(member) = placed {
                wanted.entry(member.process_id.clone()).or_insert_with(|| (member, BTreeSet::new())).1.insert(queue.clone());
            }
        }
        wanted
    }

    fn open(&mut self, member: Member, queues: BTreeSet<TaskQueue>) {
        let outbox = Arc::new(Outbox::default());
        for queue in &queues {
            let room = self.credits.get(queue.as_str());
            if room != Room::default() {
                outbox.grant(queue.as_str(), room);
            }
        }
        let number = self.next_number;
        self.next_number += 1;
        let (process_id, who) = (member.process_id.clone(), (self.namespace.clone(), self.worker_id.clone()));
        let running = link::run(self.edge.clone(), number, member, who, outbox.clone(), self.events.clone());
        self.links.insert(number, Link { process_id, queues, outbox, _task: harvest_runtime::spawn_owned("work-link", running) });
    }
}
