//! The queues of one matching process: a pure state machine. Offers and credits in, matches out; the time is a parameter.
//!
//! Invariant after every call: no offer that anybody may take waits in a queue where a session has credit.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use harvest_ids::{Epoch, EventId, ExecutionId, Namespace, ShardId, TaskQueue, WorkerId};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Most credit that one session may have in one queue and class: credit beyond it is forgotten.
pub(crate) const MAX_CREDIT: u32 = 10_000;
/// Most (queue, class) pairs that one session may give credit for.
pub(crate) const MAX_CREDITED_QUEUES: usize = 256;

/// One stream of offers from a history process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SourceId(pub u64);

/// One stream of a worker session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(pub u64);

/// Kinds of offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Workflow,
    Activity,
    Query,
}

/// Kinds of credit: a worker answers queries in the place of a workflow task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    Workflow,
    Activity,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Workflow, Self::Activity, Self::Query];

    pub(crate) fn class(self) -> Class {
        match self {
            Self::Workflow | Self::Query => Class::Workflow,
            Self::Activity => Class::Activity,
        }
    }

    /// As metrics name it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Activity => "activity",
            Self::Query => "query",
        }
    }
}

/// What is offered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    Workflow,
    Activity(EventId),
    Query(Bytes),
}

impl Item {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Workflow => Kind::Workflow,
            Self::Activity(_) => Kind::Activity,
            Self::Query(_) => Kind::Query,
        }
    }
}

/// What makes two offers the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OfferKey {
    pub execution_id: ExecutionId,
    pub item: Item,
}

/// A ready task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub key: OfferKey,
    pub shard_id: ShardId,
    pub epoch: Epoch,
    pub namespace: Namespace,
    pub task_queue: TaskQueue,
    /// The session preferred for `sticky_timeout`, while it is connected.
    pub sticky: Option<WorkerId>,
    pub sticky_timeout: Duration,
    pub source: SourceId,
    /// Order of arrival; kept when the task is offered again.
    pub arrival: u64,
    /// When it first arrived.
    pub arrived: Duration,
    /// How often taking it has failed.
    pub failures: u32,
}

/// A worker was found for an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    pub offer: Offer,
    pub session: SessionId,
    pub worker_id: WorkerId,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct QueueKey {
    namespace: Namespace,
    task_queue: TaskQueue,
    class: Class,
}

impl Offer {
    fn queue(&self) -> QueueKey {
        QueueKey { namespace: self.namespace.clone(), task_queue: self.task_queue.clone(), class: self.key.item.kind().class() }
    }
}

/// Where an offer waits.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// For anybody.
    Ready,
    /// For this worker, or until its timer.
    Sticky(WorkerId),
    /// For its timer.
    Delayed,
}

#[derive(Debug)]
struct Waiting {
    offer: Offer,
    place: Place,
    timer: Option<(Duration, u64)>,
}

#[derive(Debug, Default)]
struct Queue {
    ready: BTreeMap<u64, OfferKey>,
    sticky: HashMap<WorkerId, BTreeMap<u64, OfferKey>>,
    /// Sessions with credit, in turn. May name some that have none left or are gone.
    sessions: VecDeque<SessionId>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Credit {
    available: u32,
    /// Whether the session is in the queue's turn.
    in_turn: bool,
}

#[derive(Debug)]
struct Session {
    namespace: Namespace,
    worker_id: WorkerId,
    credits: HashMap<(TaskQueue, Class), Credit>,
    draining: bool,
}

#[derive(Debug, Default)]
struct Source {
    offers: HashSet<OfferKey>,
    counts: HashMap<(Namespace, TaskQueue, Kind), usize>,
}

/// What became of an offer that was not matched at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It was matched, waits, or was older than what is known.
    Taken(Vec<Match>),
    /// Its source has the most offers that it may have in that queue: a bound of its own, or what is left free by all.
    Dropped,
}

/// All queues.
#[derive(Debug)]
pub(crate) struct State {
    window: usize,
    max_offers: usize,
    queues: HashMap<QueueKey, Queue>,
    offers: HashMap<OfferKey, Waiting>,
    sessions: HashMap<SessionId, Session>,
    workers: HashMap<(Namespace, WorkerId), SessionId>,
    sticky_offers: HashMap<(Namespace, WorkerId), HashSet<OfferKey>>,
    sources: HashMap<SourceId, Source>,
    timers: BTreeMap<(Duration, u64), OfferKey>,
    next_number: u64,
}

impl State {
    /// No queues. Each source may have `window` offers in one queue and kind, and no more than are left free of `max_offers` in all: so that
    /// queues that nobody serves do not take all room, however many there are.
    pub(crate) fn new(window: usize, max_offers: usize) -> Self {
        Self {
            window,
            max_offers,
            queues: HashMap::new(),
            offers: HashMap::new(),
            sessions: HashMap::new(),
            workers: HashMap::new(),
            sticky_offers: HashMap::new(),
            sources: HashMap::new(),
            timers: BTreeMap::new(),
            next_number: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A new stream of offers.
    pub(crate) fn add_source(&mut self) -> SourceId {
        let id = SourceId(self.number());
        self.sources.insert(id, Source::default());
        id
    }

    /// The stream broke: its offers vanish, since their process offers them again.
    pub(crate) fn remove_source(&mut self, id: SourceId) {
        let Some(source) = self.sources.get(&id) else { return };
        for key in source.offers.iter().cloned().collect::<Vec<_>>() {
            self.take_out(&key);
        }
        self.sources.remove(&id);
    }

    /// A new stream of a worker session; it takes the place of an older one of the same worker.
    pub(crate) fn add_session(&mut self, namespace: Namespace, worker_id: WorkerId) -> SessionId {
        let id = SessionId(self.number());
        self.workers.insert((namespace.clone(), worker_id.clone()), id);
        self.sessions.insert(id, Session { namespace, worker_id, credits: HashMap::new(), draining: false });
        id
    }

    /// The stream broke: its credits vanish, and nothing waits for it any more.
    pub(crate) fn remove_session(&mut self, id: SessionId) -> Vec<Match> {
        let Some(session) = self.sessions.remove(&id) else { return Vec::new() };
        for (task_queue, class) in session.credits.into_keys() {
            let key = QueueKey { namespace: session.namespace.clone(), task_queue, class };
            if let Some(queue) = self.queues.get_mut(&key) {
                queue.sessions.retain(|other| *other != id);
            }
            self.forget_if_empty(&key);
        }
        let worker = (session.namespace, session.worker_id);
        if self.workers.get(&worker) != Some(&id) {
            return Vec::new(); // a newer stream of the same worker is here
        }
        self.workers.remove(&worker);
        let freed: Vec<OfferKey> = self.sticky_offers.get(&worker).into_iter().flatten().cloned().collect();
        freed.iter().flat_map(|key| self.release(key)).collect()
    }

    /// How many sessions there are.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// How many offers wait, by kind.
    pub(crate) fn depth(&self) -> HashMap<Kind, usize> {
        let mut depth: HashMap<Kind, usize> = Kind::ALL.into_iter().map(|kind| (kind, 0)).collect();
        for key in self.offers.keys() {
            *depth.entry(key.item.kind()).or_insert(0) += 1;
        }
        depth
    }

    /// The session takes no more tasks. Its stream stays, for those on their way.
    pub(crate) fn drain(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.draining = true;
            session.credits.values_mut().for_each(|credit| credit.available = 0);
        }
    }

    /// A task is ready. Its `arrival` and `arrived` are set here.
    pub(crate) fn offer(&mut self, now: Duration, mut offer: Offer) -> Offered {
        (offer.arrived, offer.arrival) = match self.offers.get(&offer.key) {
            Some(known) if known.offer.epoch > offer.epoch => return Offered::Taken(Vec::new()),
            Some(known) => (known.offer.arrived, known.offer.arrival),
            None => (now, self.number()),
        };
        self.take_out(&offer.key);
        let count = (offer.namespace.clone(), offer.task_queue.clone(), offer.key.item.kind());
        let Some(source) = self.sources.get(&offer.source) else { return Offered::Taken(Vec::new()) };
        let free = self.max_offers.saturating_sub(self.offers.len());
        if source.counts.get(&count).copied().unwrap_or_default() >= self.window.min(free) {
            return Offered::Dropped;
        }
        Offered::Taken(self.place(now, offer))
    }

    /// Puts an offer back whose task could not be taken, to be tried again after `delay`. Dropped when its source is gone or has offered it anew.
    pub(crate) fn retry(&mut self, now: Duration, mut offer: Offer, delay: Duration) {
        if self.offers.contains_key(&offer.key) || !self.sources.contains_key(&offer.source) {
            return;
        }
        offer.failures = offer.failures.saturating_add(1);
        offer.sticky = None;
        self.put(offer, Place::Delayed, Some(now + delay));
    }

    /// Gives a session room for `count` more tasks. False when it may not name so many queues.
    pub(crate) fn credit(&mut self, id: SessionId, task_queue: &TaskQueue, class: Class, count: u32) -> (bool, Vec<Match>) {
        let mut matches = Vec::new();
        let Some(session) = self.sessions.get_mut(&id) else { return (true, matches) };
        if session.draining || count == 0 {
            return (true, matches);
        }
        let name = (task_queue.clone(), class);
        if !session.credits.contains_key(&name) && session.credits.len() >= MAX_CREDITED_QUEUES {
            return (false, matches);
        }
        let credit = session.credits.entry(name.clone()).or_default();
        credit.available = credit.available.saturating_add(count).min(MAX_CREDIT);
        let worker_id = session.worker_id.clone();
        let key = QueueKey { namespace: session.namespace.clone(), task_queue: task_queue.clone(), class };
        let queue = self.queues.entry(key.clone()).or_default();
        if !credit.in_turn {
            credit.in_turn = true;
            queue.sessions.push_back(id);
        }
        // What waits here waits for somebody with credit: until now for this session, or for anybody because nobody had any.
        while let Some(queue) = self.queues.get(&key) {
            let available = self.sessions.get(&id).and_then(|session| session.credits.get(&name)).map_or(0, |credit| credit.available);
            let mine = queue.sticky.get(&worker_id).and_then(BTreeMap::first_key_value);
            let first = mine.into_iter().chain(queue.ready.first_key_value()).min_by_key(|(arrival, _)| **arrival).map(|(_, key)| key.clone());
            match first {
                Some(offer) if available > 0 => matches.extend(self.give(&offer, id)),
                _ => break,
            }
        }
        (true, matches)
    }

    /// When the next timer runs out.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Frees what has waited long enough.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<Match> {
        let mut matches = Vec::new();
        while let Some((_, key)) = self.timers.first_key_value().filter(|((at, _), _)| *at <= now) {
            let key = key.clone();
            matches.extend(self.release(&key));
        }
        matches
    }

    /// Finds the place of a new offer: a worker at once, its sticky worker's list, or the queue.
    fn place(&mut self, now: Duration, offer: Offer) -> Vec<Match> {
        let queue = offer.queue();
        let key = offer.key.clone();
        let sticky = offer.sticky.clone().and_then(|worker| {
            let session = *self.workers.get(&(offer.namespace.clone(), worker.clone()))?;
            Some((worker, session)).filter(|_| !self.sessions[&session].draining)
        });
        if let Some((worker, session)) = sticky {
            if self.has_credit(session, &queue) {
                self.put(offer, Place::Ready, None);
                return self.give(&key, session).into_iter().collect();
            }
            if !offer.sticky_timeout.is_zero() {
                let until = now + offer.sticky_timeout;
                self.put(offer, Place::Sticky(worker), Some(until));
                return Vec::new();
            }
        }
        self.put(offer, Place::Ready, None);
        self.match_ready(&queue)
    }

    /// Moves an offer that waits for a worker or a timer to where anybody may take it.
    fn release(&mut self, key: &OfferKey) -> Vec<Match> {
        let Some(offer) = self.take_out(key) else { return Vec::new() };
        let queue = offer.queue();
        self.put(offer, Place::Ready, None);
        self.match_ready(&queue)
    }

    /// Gives ready offers of a queue, oldest first, to sessions with credit, in turn.
    fn match_ready(&mut self, key: &QueueKey) -> Vec<Match> {
        let mut matches = Vec::new();
        while let Some(queue) = self.queues.get_mut(key) {
            let Some(offer) = queue.ready.first_key_value().map(|(_, offer)| offer.clone()) else { break };
            let Some(session) = queue.sessions.pop_front() else { break };
            if self.has_credit(session, key) {
                self.queues.entry(key.clone()).or_default().sessions.push_back(session);
                matches.extend(self.give(&offer, session));
            } else if let Some(credit) = self.credit_of(session, key) {
                credit.in_turn = false;
            }
        }
        matches
    }

    fn credit_of(&mut self, session: SessionId, key: &QueueKey) -> Option<&mut Credit> {
        self.sessions.get_mut(&session)?.credits.get_mut(&(key.task_queue.clone(), key.class))
    }

    fn has_credit(&mut self, session: SessionId, key: &QueueKey) -> bool {
        self.credit_of(session, key).is_some_and(|credit| credit.available > 0)
    }

    fn give(&mut self, key: &OfferKey, session: SessionId) -> Option<Match> {
        let offer = self.take_out(key)?;
        let credit = self.credit_of(session, &offer.queue())?;
        credit.available = credit.available.saturating_sub(1);
        let worker_id = self.sessions.get(&session)?.worker_id.clone();
        Some(Match { offer, session, worker_id })
    }

    fn put(&mut self, offer: Offer, place: Place, until: Option<Duration>) {
        let (key, arrival) = (offer.key.clone(), offer.arrival);
        let timer = until.map(|at| (at, self.number()));
        if let Some(timer) = timer {
            self.timers.insert(timer, key.clone());
        }
        let queue = self.queues.entry(offer.queue()).or_default();
        match &place {
            Place::Ready => _ = queue.ready.insert(arrival, key.clone()),
            Place::Sticky(worker) => {
                queue.sticky.entry(worker.clone()).or_default().insert(arrival, key.clone());
                self.sticky_offers.entry((offer.namespace.clone(), worker.clone())).or_default().insert(key.clone());
            }
            Place::Delayed => {}
        }
        if let Some(source) = self.sources.get_mut(&offer.source) {
            source.offers.insert(key.clone());
            *source.counts.entry((offer.namespace.clone(), offer.task_queue.clone(), key.item.kind())).or_insert(0) += 1;
        }
        self.offers.insert(key, Waiting { offer, place, timer });
    }

    /// Removes an offer from everywhere.
    fn take_out(&mut self, key: &OfferKey) -> Option<Offer> {
        let Waiting { offer, place, timer } = self.offers.remove(key)?;
        if let Some(timer) = timer {
            self.timers.remove(&timer);
        }
        let queue_key = offer.queue();
        if let Some(queue) = self.queues.get_mut(&queue_key) {
            match &place {
                Place::Ready => _ = queue.ready.remove(&offer.arrival),
                Place::Sticky(worker) => {
                    if let Some(list) = queue.sticky.get_mut(worker) {
                        list.remove(&offer.arrival);
                        if list.is_empty() {
                            queue.sticky.remove(worker);
                        }
                    }
                    let worker = (offer.namespace.clone(), worker.clone());
                    if let Some(offers) = self.sticky_offers.get_mut(&worker) {
                        offers.remove(key);
                        if offers.is_empty() {
                            self.sticky_offers.remove(&worker);
                        }
                    }
                }
                Place::Delayed => {}
            }
        }
        self.forget_if_empty(&queue_key);
        if let Some(source) = self.sources.get_mut(&offer.source) {
            source.offers.remove(key);
            let count = (offer.namespace.clone(), offer.task_queue.clone(), key.item.kind());
            if let Some(left) = source.counts.get_mut(&count) {
                *left -= 1;
                if *left == 0 {
                    source.counts.remove(&count);
                }
            }
        }
        Some(offer)
    }

    fn forget_if_empty(&mut self, key: &QueueKey) {
        if self.queues.get(key).is_some_and(|queue| queue.ready.is_empty() && queue.sticky.is_empty() && queue.sessions.is_empty()) {
            self.queues.remove(key);
        }
    }
}
