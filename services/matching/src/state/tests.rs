//! The queues without anything around them.

use super::*;
use harvest_ids::{Slot, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

struct World {
    state: State,
    source: SourceId,
    now: Duration,
}

fn queue() -> TaskQueue {
    TaskQueue::new("orders").unwrap()
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn run(number: u64) -> ExecutionId {
    ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(0), number)
}

impl World {
    fn new() -> Self {
        let mut state = State::new(3, 100);
        let source = state.add_source();
        Self { state, source, now: SECOND }
    }

    fn raw(&self, number: u64, item: Item) -> Offer {
        Offer {
            key: OfferKey { execution_id: run(number), item },
            shard_id: ShardId(1),
            epoch: Epoch(1),
            namespace: Namespace::default(),
            task_queue: queue(),
            sticky: None,
            sticky_timeout: SECOND,
            source: self.source,
            arrival: 0,
            arrived: Duration::ZERO,
            failures: 0,
        }
    }

    /// (run, worker) of the matches made.
    fn offer(&mut self, number: u64) -> Vec<(ExecutionId, String)> {
        let offer = self.raw(number, Item::Workflow);
        self.offer_raw(offer)
    }

    fn offer_sticky(&mut self, number: u64, sticky: &str) -> Vec<(ExecutionId, String)> {
        let offer = Offer { sticky: Some(worker(sticky)), ..self.raw(number, Item::Workflow) };
        self.offer_raw(offer)
    }

    fn offer_raw(&mut self, offer: Offer) -> Vec<(ExecutionId, String)> {
        match self.state.offer(self.now, offer) {
            Offered::Taken(matches) => pairs(matches),
            Offered::Dropped => panic!("the window is not full"),
        }
    }

    fn session(&mut self, name: &str) -> SessionId {
        self.state.add_session(Namespace::default(), worker(name))
    }

    fn credit(&mut self, session: SessionId, count: u32) -> Vec<(ExecutionId, String)> {
        pairs(self.state.credit(session, &queue(), Class::Workflow, count).1)
    }
}

fn pairs(matches: Vec<Match>) -> Vec<(ExecutionId, String)> {
    matches.into_iter().map(|found| (found.offer.key.execution_id, found.worker_id.to_string())).collect()
}

fn pair(number: u64, name: &str) -> (ExecutionId, String) {
    (run(number), name.to_owned())
}

#[test]
fn the_oldest_offers_go_first_and_no_further_than_the_credit() {
    let mut world = World::new();
    for number in [3, 1, 2] {
        assert!(world.offer(number).is_empty());
    }
    let a = world.session("a");
    assert_eq!(world.credit(a, 2), [pair(3, "a"), pair(1, "a")]);
    assert_eq!(world.credit(a, 2), [pair(2, "a")]);
    assert_eq!(world.offer(9), [pair(9, "a")]);
    assert!(world.offer(10).is_empty());
}

#[test]
fn sessions_with_credit_take_turns() {
    let mut world = World::new();
    let (a, b) = (world.session("a"), world.session("b"));
    world.credit(a, 5);
    world.credit(b, 5);
    let takers: Vec<String> = (1..=4).map(|number| world.offer(number).remove(0).1).collect();
    assert_eq!(takers, ["a", "b", "a", "b"]);
}

#[test]
fn an_offer_made_again_replaces_the_old_one_and_keeps_its_turn() {
    let mut world = World::new();
    world.offer(1);
    world.offer(2);
    let again = Offer { epoch: Epoch(2), ..world.raw(1, Item::Workflow) };
    world.offer_raw(again);
    let stale = world.raw(1, Item::Workflow);
    world.offer_raw(stale);
    let a = world.session("a");
    let (_, matches) = world.state.credit(a, &queue(), Class::Workflow, 5);
    assert_eq!(matches.iter().map(|found| (found.offer.key.execution_id, found.offer.epoch)).collect::<Vec<_>>(), [(run(1), Epoch(2)), (run(2), Epoch(1))]);
}

#[test]
fn a_sticky_offer_waits_for_its_worker_and_then_goes_to_anybody() {
    let mut world = World::new();
    let (a, b) = (world.session("a"), world.session("b"));
    world.credit(b, 5);
    assert!(world.offer_sticky(1, "a").is_empty(), "a is connected, without credit");
    assert_eq!(world.credit(a, 2), [pair(1, "a")]);
    assert_eq!(world.offer_sticky(2, "a"), [pair(2, "a")], "a has credit");
    assert!(world.offer_sticky(3, "a").is_empty());
    assert_eq!(world.state.next_timer(), Some(SECOND * 2));
    assert!(world.state.expire(SECOND * 2 - Duration::from_millis(1)).is_empty());
    assert_eq!(pairs(world.state.expire(SECOND * 2)), [pair(3, "b")]);
    assert_eq!(world.offer_sticky(4, "gone"), [pair(4, "b")], "nobody waits for a worker that is not here");
}

#[test]
fn what_waits_for_a_worker_goes_to_others_when_it_leaves() {
    let mut world = World::new();
    let (a, b) = (world.session("a"), world.session("b"));
    world.credit(b, 1);
    world.offer_sticky(1, "a");
    assert_eq!(pairs(world.state.remove_session(a)), [pair(1, "b")]);
    assert_eq!(world.state.next_timer(), None);
}

#[test]
fn a_workers_new_stream_keeps_what_waits_for_it() {
    let mut world = World::new();
    let old = world.session("a");
    world.offer_sticky(1, "a");
    let new = world.session("a");
    assert!(world.state.remove_session(old).is_empty());
    assert_eq!(world.credit(new, 1), [pair(1, "a")]);
}

#[test]
fn credits_vanish_with_their_session_and_by_draining() {
    let mut world = World::new();
    let (a, b) = (world.session("a"), world.session("b"));
    world.credit(a, 5);
    world.credit(b, 5);
    world.state.remove_session(a);
    world.state.drain(b);
    assert!(world.offer(1).is_empty());
    assert!(world.credit(b, 5).is_empty());
    let c = world.session("c");
    assert_eq!(world.credit(c, 1), [pair(1, "c")]);
}

#[test]
fn offers_vanish_with_their_source_but_not_those_that_a_newer_stream_has_made_again() {
    let mut world = World::new();
    let old = world.source;
    world.offer(1);
    world.offer(2);
    world.source = world.state.add_source();
    world.offer(2);
    world.state.remove_source(old);
    let a = world.session("a");
    assert_eq!(world.credit(a, 5), [pair(2, "a")]);
}

#[test]
fn a_source_may_have_its_window_in_each_queue_and_kind_and_no_more() {
    let mut world = World::new();
    for number in 1..=3 {
        world.offer(number);
    }
    let fourth = world.raw(4, Item::Workflow);
    assert_eq!(world.state.offer(SECOND, fourth), Offered::Dropped);
    world.offer(2); // again
    let activity = world.raw(4, Item::Activity(EventId(7)));
    world.offer_raw(activity);
    let a = world.session("a");
    world.credit(a, 1);
    world.offer(5);
}

#[test]
fn queues_that_nobody_serves_leave_room_for_the_others() {
    let mut world = World::new();
    world.state = State::new(500, 1_000);
    world.source = world.state.add_source();
    // History offers again and again what nobody took.
    for _ in 0..8 {
        for name in 0..10_u64 {
            for number in 0..500 {
                let offer = Offer { task_queue: TaskQueue::new(format!("forgotten-{name}")).unwrap(), ..world.raw(name * 500 + number, Item::Workflow) };
                world.state.offer(SECOND, offer);
            }
        }
        assert!(world.state.offers.len() <= 1_000);
    }
    let before = world.state.offers.len();
    (0..40).for_each(|number| drop(world.offer(6_000 + number)));
    assert_eq!(world.state.offers.len(), before + 40);
}

#[test]
fn queries_use_workflow_credit_and_activities_their_own() {
    let mut world = World::new();
    let a = world.session("a");
    world.credit(a, 1);
    let activity = world.raw(1, Item::Activity(EventId(7)));
    assert!(world.offer_raw(activity).is_empty());
    let query = world.raw(1, Item::Query(Bytes::from_static(b"q")));
    assert_eq!(world.offer_raw(query), [pair(1, "a")]);
    assert_eq!(pairs(world.state.credit(a, &queue(), Class::Activity, 1).1), [pair(1, "a")]);
}

#[test]
fn a_task_that_could_not_be_taken_is_tried_again_after_a_while_unless_offered_anew() {
    let mut world = World::new();
    let a = world.session("a");
    world.credit(a, 2);
    let offer = world.raw(1, Item::Workflow);
    let Offered::Taken(matches) = world.state.offer(SECOND, offer) else { panic!("taken") };
    world.state.retry(SECOND, matches[0].offer.clone(), SECOND);
    assert!(world.state.expire(SECOND).is_empty());
    let again = world.state.expire(SECOND * 2);
    assert_eq!((again.len(), again[0].offer.failures), (1, 1));
    world.state.offer(SECOND, world.raw(1, Item::Workflow));
    world.state.retry(SECOND, again[0].offer.clone(), SECOND);
    assert_eq!(world.state.next_timer(), None);
}

#[test]
fn nothing_is_left_in_memory_when_all_have_gone() {
    let mut world = World::new();
    let (a, b) = (world.session("a"), world.session("b"));
    world.credit(a, 1);
    world.offer(1);
    world.offer_sticky(2, "b");
    world.offer(3);
    world.state.remove_session(a);
    world.state.remove_session(b);
    world.state.remove_source(world.source);
    let state = &world.state;
    assert!(state.queues.is_empty() && state.offers.is_empty() && state.sessions.is_empty() && state.workers.is_empty());
    assert!(state.sticky_offers.is_empty() && state.sources.is_empty() && state.timers.is_empty());
}
