//! A store that stays away for longer than callers are made to wait, and comes back.

use super::faulty::{Fate, Outage};
use super::stage::{Owner, Stage, activity, close_activity, count, done, finish, signal, signals, start, started};
use crate::shard::neighbours::OfferKind;
use crate::shard::operation::{Answer, Operation, Refusal, Target};
use harvest_ids::ExecutionId;
use harvest_runtime::Clock;
use harvest_workflow_core::event::EventKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

type Waiting = oneshot::Receiver<Result<Answer, Refusal>>;

fn submit(owner: &Owner, operation: Operation) -> Waiting {
    owner.handle.submit(operation).unwrap()
}

async fn refused(stage: &Stage, waiting: Waiting) {
    assert_eq!(stage.soon(waiting).await.unwrap(), Err(Refusal::StoreAway));
}

/// Long enough for the store to be found again.
async fn back(stage: &Stage, owner: &Owner) {
    owner.faults.set_outage(Outage::None);
    stage.clock.sleep(Duration::from_secs(3)).await;
}

/// Puts the shard away, with a signal that is not in the store then.
async fn put_away(stage: &Stage, owner: &Owner, run: ExecutionId, outage: Outage) {
    owner.faults.set_outage(outage);
    refused(stage, submit(owner, signal(Target::Execution(run), "lost"))).await;
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_store_that_stays_away_are_told_so_and_nothing_is_half_done() {
    for outage in [Outage::Full, Outage::Away] {
        let stage = Stage::new(1).await;
        let owner = stage.open(0).await;
        let run = owner.start("a").await;
        stage.rest().await;
        stage.fleet.take_offers();
        owner.faults.set_outage(outage);
        let in_flight = submit(&owner, signal(Target::Execution(run), "one"));
        stage.rest().await;
        let open = submit(&owner, start("b"));
        let read = submit(&owner, Operation::Describe(Target::Execution(run)));
        refused(&stage, in_flight).await;
        refused(&stage, read).await;
        // Where nothing can be read it is not even decided.
        let open = stage.soon(open).await.unwrap();
        assert!(matches!(&open, Err(Refusal::StoreAway | Refusal::Unavailable(_))), "{open:?}");
        let before = stage.clock.monotonic();
        assert_eq!(owner.call(start("c")).await, Err(Refusal::StoreAway));
        assert_eq!(stage.clock.monotonic(), before, "at once");
        stage.clock.sleep(Duration::from_secs(300)).await;
        assert_eq!(owner.signal(run, "two").await, Err(Refusal::StoreAway));
        assert!(signals(&stage.events(0, run).await).is_empty());
        assert!(stage.fleet.take_offers().is_empty());
        back(&stage, &owner).await;
        assert!(matches!(owner.signal(run, "one").await, Ok(Answer::Decided { fresh: true, .. })), "{outage:?}");
        let new = started(owner.call(start("b")).await);
        for run in [run, new] {
            assert_eq!(Some(owner.describe(run).await.last_event), stage.events(0, run).await.last().map(|event| event.id));
            assert_eq!(stage.workflow_task(&owner, "w").await.token.attempt.0, 1);
        }
        assert_eq!(signals(&stage.events(0, run).await), ["one"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_had_landed_before_its_callers_were_refused_is_not_done_twice() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    owner.faults.script([Fate::UnknownLanded]);
    put_away(&stage, &owner, run, Outage::Away).await;
    back(&stage, &owner).await;
    assert!(matches!(owner.signal(run, "lost").await, Ok(Answer::Decided { fresh: false, .. })));
    assert_eq!(signals(&stage.events(0, run).await), ["lost"]);
    stage.workflow_task(&owner, "w").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_neither_takes_nor_refuses_a_batch_is_not_waited_for_either() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    owner.faults.hold_commits(true);
    let hanging = submit(&owner, signal(Target::Execution(run), "one"));
    stage.rest().await;
    let open = submit(&owner, start("b"));
    refused(&stage, hanging).await;
    refused(&stage, open).await;
    owner.faults.hold_commits(false);
    stage.clock.sleep(Duration::from_secs(1)).await;
    assert!(matches!(owner.signal(run, "one").await, Ok(Answer::Decided { fresh: false, .. })), "it was committed after all");
    assert!(matches!(owner.call(start("b")).await, Ok(Answer::Started { fresh: true, .. })), "it was not");
    assert_eq!(signals(&stage.events(0, run).await), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_and_takes_no_batch_is_away_again_at_once() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    // Raising the epoch works: there is room on the disk for that, and not for a batch.
    owner.faults.script([Fate::Unavailable; 40]);
    for number in 0..5 {
        let began = stage.clock.monotonic();
        assert_eq!(owner.signal(run, "one").await, Err(Refusal::StoreAway));
        let took = stage.clock.monotonic() - began;
        assert!(number == 0 || took < Duration::from_secs(1), "{took:?} at try {number}");
        stage.clock.sleep(Duration::from_secs(3)).await;
    }
    let mut answer = owner.signal(run, "one").await;
    while answer == Err(Refusal::StoreAway) {
        stage.clock.sleep(Duration::from_secs(1)).await;
        answer = owner.signal(run, "one").await;
    }
    assert!(matches!(answer, Ok(Answer::Decided { fresh: true, .. })));
    assert_eq!(signals(&stage.events(0, run).await), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_taker_was_refused_is_handed_out_when_the_store_is_back() {
    for outage in [Outage::Full, Outage::Away] {
        let stage = Stage::new(1).await;
        let owner = stage.open(0).await;
        let run = owner.start("a").await;
        let task = stage.workflow_task(&owner, "w").await;
        owner.complete(&task, vec![activity(1)]).await.unwrap();
        let offer = stage.offer(&owner, OfferKind::Activity).await;
        owner.faults.set_outage(outage);
        assert_eq!(owner.take(&offer, "w").await, Err(Refusal::StoreAway));
        stage.clock.sleep(Duration::from_secs(20)).await;
        back(&stage, &owner).await;
        let charge = stage.activity_task(&owner, "x").await;
        assert_eq!(charge.token.attempt.0, 1, "an attempt that nobody ran is not spent");
        owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
        assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::ActivityCompleted { .. })), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_start_nothing_wrote_is_handed_out_again_too() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.start("a").await;
    let offer = stage.offer(&owner, OfferKind::Workflow).await;
    owner.faults.set_outage(Outage::Away);
    // Only the look at the epoch fails: there is nothing to commit.
    assert_eq!(owner.take(&offer, "w").await, Err(Refusal::StoreAway));
    back(&stage, &owner).await;
    let task = stage.workflow_task(&owner, "x").await;
    assert_eq!(task.token.attempt.0, 1);
    owner.complete(&task, vec![finish()]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_workers_have_in_hand_survives_an_outage() {
    for outage in [Outage::Full, Outage::Away] {
        let stage = Stage::new(1).await;
        let owner = stage.open(0).await;
        let (first, second) = (owner.start("a").await, owner.start("b").await);
        let task = stage.workflow_task(&owner, "w").await;
        owner.complete(&task, vec![activity(3)]).await.unwrap();
        let charge = stage.activity_task(&owner, "w").await;
        let deciding = stage.workflow_task(&owner, "w").await;
        let waiting = submit(&owner, Operation::AwaitClose(Target::Execution(second)));
        // Its batch would hold the start of the attempt, too.
        put_away(&stage, &owner, first, outage).await;
        put_away(&stage, &owner, second, outage).await;
        stage.clock.sleep(Duration::from_secs(60)).await;
        back(&stage, &owner).await;
        assert_eq!(owner.describe(first).await.activities[0].state, "STARTED");
        stage.clock.sleep(Duration::from_secs(4)).await;
        assert_eq!(owner.describe(first).await.activities[0].attempt.0, 1, "nobody could be heard during the outage");
        owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
        // A workflow task has its own timeout, which went on.
        let late = owner.complete(&deciding, vec![finish()]).await;
        assert!(matches!(late, Err(Refusal::Reject(_))), "{late:?}");
        let again = loop {
            let task = stage.workflow_task(&owner, "x").await;
            if task.token.execution_id == second {
                break task;
            }
        };
        owner.complete(&again, vec![finish()]).await.unwrap();
        assert!(matches!(stage.soon(waiting).await.unwrap(), Ok(Answer::Closed(_))), "who waits for an end may wait on");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_store_is_away_can_be_closed() {
    let stage = Stage::new(1).await;
    let mut old = stage.open(0).await;
    let run = old.start("a").await;
    put_away(&stage, &old, run, Outage::Full).await;
    old.stop().await;
    let owner = stage.open(0).await;
    assert!(matches!(owner.signal(run, "lost").await, Ok(Answer::Decided { fresh: true, .. })));
    stage.workflow_task(&owner, "w").await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_replaced_during_an_outage_notices_when_the_store_is_back() {
    let stage = Stage::new(1).await;
    let old = stage.open(0).await;
    let run = old.start("a").await;
    put_away(&stage, &old, run, Outage::Away).await;
    let owner = stage.open(0).await;
    old.faults.set_outage(Outage::None);
    let mut handle = old.handle.clone();
    stage.soon(handle.stopped()).await;
    assert!(matches!(owner.signal(run, "lost").await, Ok(Answer::Decided { fresh: true, .. })));
}

/// Counts warnings and errors.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_hours_is_logged_as_two_changes_of_state() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let count = Arc::new(AtomicUsize::new(0));
    let _counting = tracing::subscriber::set_default(Warnings(count.clone()));
    put_away(&stage, &owner, run, Outage::Full).await;
    for _ in 0..120 {
        stage.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(owner.signal(run, "two").await, Err(Refusal::StoreAway));
    }
    back(&stage, &owner).await;
    owner.signal(run, "two").await.unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 2, "in trouble, and away");
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_only_reads_finds_out_too() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.set_outage(Outage::Away);
    let began = stage.clock.monotonic();
    loop {
        match owner.call(start("a")).await {
            Err(Refusal::Unavailable(_)) => stage.clock.sleep(Duration::from_millis(300)).await,
            Err(Refusal::StoreAway) => break,
            other => panic!("{other:?}"),
        }
        assert!(stage.clock.monotonic() - began < Duration::from_secs(10));
    }
    back(&stage, &owner).await;
    started(owner.call(start("a")).await);
}
