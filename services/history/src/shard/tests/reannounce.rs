//! A shard that is taken over while workers run attempts whose start nobody has saved: frontends say so before anything is offered.

use super::faulty::{Faults, Faulty};
use super::fleet::FakeFleet;
use super::stage::{Owner, Stage, activity, close_activity, count, done, worker_id};
use crate::shard::actor::{ShardConfig, ShardDeps, Tuning, open};
use crate::shard::memory::Memory;
use crate::shard::neighbours::{Neighbours, Offer, OfferKind};
use crate::shard::operation::{Answer, Operation, Refusal, TakenActivityTask};
use async_trait::async_trait;
use harvest_ids::{Epoch, ExecutionId, ShardId, Timestamp};
use harvest_persistence::batch::OutboxRow;
use harvest_runtime::Clock;
use harvest_workflow_core::event::EventKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The fake fleet, with frontends that answer when the test says so.
struct Frontends {
    fleet: Arc<FakeFleet>,
    asked: watch::Sender<Option<(ShardId, Epoch)>>,
    answered: watch::Sender<bool>,
}

impl Frontends {
    fn new(stage: &Stage) -> Arc<Self> {
        Arc::new(Self { fleet: stage.fleet.clone(), asked: watch::channel(None).0, answered: watch::channel(false).0 })
    }

    fn answer(&self) {
        self.answered.send_replace(true);
    }
}

#[async_trait]
impl Neighbours for Frontends {
    fn offer(&self, offer: Offer) -> bool {
        self.fleet.offer(offer)
    }
    fn offer_window(&self) -> usize {
        self.fleet.offer_window()
    }
    fn offer_generation(&self) -> u64 {
        self.fleet.offer_generation()
    }
    fn arm(&self, shard_id: ShardId, deadlines: Vec<(ExecutionId, Timestamp)>) {
        self.fleet.arm(shard_id, deadlines);
    }
    fn shard_of(&self, execution_id: ExecutionId) -> ShardId {
        self.fleet.shard_of(execution_id)
    }
    async fn deliver(&self, target: ShardId, messages: Vec<OutboxRow>) -> bool {
        self.fleet.deliver(target, messages).await
    }
    fn acknowledge(&self, shard_id: ShardId, epoch: Epoch, version: (u64, u64)) {
        self.fleet.acknowledge(shard_id, epoch, version);
    }
    fn frontends_alive(&self) -> bool {
        self.fleet.frontends_alive()
    }
    async fn reannounce(&self, shard_id: ShardId, epoch: Epoch, _: Duration) {
        self.asked.send_replace(Some((shard_id, epoch)));
        self.answered.subscribe().wait_for(|answered| *answered).await.unwrap();
    }
    fn sticky_timeout(&self) -> Duration {
        self.fleet.sticky_timeout()
    }
}

/// Takes the shard over in a fleet with these frontends, and waits until they are asked.
async fn take_over(stage: &Stage, frontends: &Arc<Frontends>) -> Owner {
    stage.fleet.take_offers();
    let faults = Faults::new();
    let store = Arc::new(Faulty { store: stage.store.clone(), faults: faults.clone() });
    let (config, receiver) = watch::channel(Arc::new(ShardConfig::default()));
    let neighbours = frontends.clone();
    let deps = ShardDeps {
        store,
        clock: stage.clock.clone(),
        ids: stage.ids.clone(),
        neighbours,
        config: receiver,
        tuning: Tuning::default(),
        memory: Memory::new(u64::MAX),
    };
    let (handle, stopper) = open(ShardId(0), deps).await.unwrap();
    let mut asked = frontends.asked.subscribe();
    let asked = stage.soon(asked.wait_for(Option::is_some)).await.unwrap().unwrap();
    assert_eq!(asked.0, ShardId(0));
    assert_eq!(asked.1, stage.store.epoch(ShardId(0)).await.unwrap(), "the new owner's epoch");
    Owner { handle, stopper: Some(stopper), faults, config }
}

/// A run with one activity that waits for a worker.
async fn ready(stage: &Stage, owner: &Owner, id: &str) -> ExecutionId {
    let run = owner.start(id).await;
    let task = stage.workflow_task(owner, "w").await;
    owner.complete(&task, vec![activity(3)]).await.unwrap();
    run
}

/// An owner that died, of two runs: the activity of one is with a worker, that of the other is with nobody.
async fn dead_owner(stage: &Stage) -> (TakenActivityTask, ExecutionId) {
    let old = stage.open(0).await;
    ready(stage, &old, "a").await;
    let charge = stage.activity_task(&old, "w").await;
    let idle = ready(stage, &old, "b").await;
    old.kill();
    (charge, idle)
}

fn announcing(owner: &Owner, charges: &[&TakenActivityTask]) -> oneshot::Receiver<Result<Answer, Refusal>> {
    let tokens = charges.iter().map(|charge| charge.token.clone()).collect();
    owner.handle.submit(Operation::Announce { worker_id: worker_id("w"), tokens }).unwrap()
}

fn activities_offered(stage: &Stage) -> Vec<ExecutionId> {
    stage.fleet.take_offers().into_iter().filter(|offer| offer.kind == OfferKind::Activity).map(|offer| offer.execution_id).collect()
}

const NOTHING_LOST: Answer = Answer::Announced { cancel_requested: Vec::new(), lost: Vec::new() };

#[tokio::test(start_paused = true)]
async fn a_live_attempt_whose_start_was_lost_with_its_owner_is_not_run_twice() {
    let stage = Stage::new(1).await;
    let (charge, idle) = dead_owner(&stage).await;
    let run = charge.token.execution_id;
    let frontends = Frontends::new(&stage);
    let owner = take_over(&stage, &frontends).await;
    assert_eq!(stage.soon(announcing(&owner, &[&charge])).await.unwrap(), Ok(NOTHING_LOST));
    assert_eq!(owner.describe(run).await.activities[0].worker_id, Some(worker_id("w")), "it is adopted when the announcement is answered");
    assert_eq!(activities_offered(&stage), [], "not before the frontends have answered");
    frontends.answer();
    stage.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(activities_offered(&stage), [idle]);
    for _ in 0..4 {
        stage.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(stage.soon(announcing(&owner, &[&charge])).await.unwrap(), Ok(NOTHING_LOST));
    }
    assert!(!activities_offered(&stage).contains(&run));
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
    assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::ActivityCompleted { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_attempt_whose_worker_falls_silent_is_lost_and_tried_again() {
    let stage = Stage::new(1).await;
    let (charge, _) = dead_owner(&stage).await;
    let run = charge.token.execution_id;
    let frontends = Frontends::new(&stage);
    let owner = take_over(&stage, &frontends).await;
    stage.soon(announcing(&owner, &[&charge])).await.unwrap().unwrap();
    frontends.answer();
    stage.clock.sleep(Duration::from_secs(9)).await;
    assert_eq!(owner.describe(run).await.activities[0].attempt.0, 1);
    stage.clock.sleep(Duration::from_secs(3)).await;
    let view = owner.describe(run).await.activities[0].clone();
    assert_eq!((view.attempt.0, view.last_failure.unwrap().error_type.as_str()), (2, "WorkerLost"));
    activities_offered(&stage);
    owner.call(super::stage::input(run, harvest_workflow_core::input::Input::Wake)).await.unwrap();
    assert_eq!(stage.activity_task(&owner, "x").await.token.attempt.0, 2, "the next attempt is offered");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_runs_is_offered_as_soon_as_the_frontends_have_answered() {
    let stage = Stage::new(1).await;
    dead_owner(&stage).await;
    let frontends = Frontends::new(&stage);
    let owner = take_over(&stage, &frontends).await;
    let began = stage.clock.monotonic();
    frontends.answer();
    stage.activity_task(&owner, "x").await;
    stage.activity_task(&owner, "x").await;
    assert!(stage.clock.monotonic() - began < Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn frontends_that_do_not_answer_are_waited_for_no_longer_than_the_hold() {
    let stage = Stage::new(1).await;
    dead_owner(&stage).await;
    let owner = take_over(&stage, &Frontends::new(&stage)).await;
    stage.clock.sleep(Duration::from_millis(1_400)).await;
    assert_eq!(activities_offered(&stage), []);
    stage.clock.sleep(Duration::from_millis(200)).await;
    stage.activity_task(&owner, "x").await;
}

#[tokio::test(start_paused = true)]
async fn an_announcement_is_answered_for_every_attempt_or_not_at_all() {
    let stage = Stage::new(1).await;
    let (charge, idle) = dead_owner(&stage).await;
    let frontends = Frontends::new(&stage);
    let owner = take_over(&stage, &frontends).await;
    // In memory: a run whose attempt nobody announces wrongly. Not in memory: one that runs, and one of a run that there is not.
    owner.describe(idle).await;
    let mut strange = charge.clone();
    strange.token.execution_id = ExecutionId::new(charge.token.execution_id.slot(), Timestamp::from_millis(1), 1);
    let mut stale = charge.clone();
    stale.token.execution_id = idle;
    stale.token.attempt.0 += 1;
    owner.faults.fail_reads(true);
    let answer = stage.soon(announcing(&owner, &[&charge, &strange, &stale])).await.unwrap();
    assert!(matches!(answer, Err(Refusal::Unavailable(_) | Refusal::StoreAway)), "{answer:?}");
    owner.faults.fail_reads(false);
    stage.clock.sleep(Duration::from_secs(2)).await;
    let answer = stage.soon(announcing(&owner, &[&charge, &strange, &stale])).await.unwrap();
    let lost = vec![stale.token, strange.token];
    assert_eq!(answer, Ok(Answer::Announced { cancel_requested: Vec::new(), lost }));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_known_to_run_has_ten_seconds_from_the_takeover_to_be_announced() {
    let stage = Stage::new(1).await;
    let mut old = stage.open(0).await;
    let run = ready(&stage, &old, "a").await;
    stage.activity_task(&old, "w").await;
    stage.clock.sleep(Duration::from_secs(8)).await;
    old.stop().await;
    let frontends = Frontends::new(&stage);
    let owner = take_over(&stage, &frontends).await;
    frontends.answer();
    let offer = stage.offer(&owner, OfferKind::Activity).await;
    assert_eq!(owner.take(&offer, "x").await, Ok(Answer::Gone), "its row is there and its start is durable");
    stage.clock.sleep(Duration::from_secs(9)).await;
    assert_eq!(owner.describe(run).await.activities[0].attempt.0, 1);
    stage.clock.sleep(Duration::from_secs(3)).await;
    assert_eq!(owner.describe(run).await.activities[0].attempt.0, 2);
}
