//! A shard that is handed over.

use super::faulty::{Faults, Faulty, Pace};
use super::stage::{Stage, activity, close_activity, done, finish, input, start, started};
use crate::shard::actor::{ShardConfig, ShardDeps, Tuning, open_when};
use crate::shard::memory::Memory;
use crate::shard::neighbours::OfferKind;
use crate::shard::operation::{Answer, Operation, Refusal, Target};
use harvest_ids::{DurationMs, ShardId, TimerName, Timestamp};
use harvest_persistence::batch::DueRow;
use harvest_runtime::Clock;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::input::Input;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[tokio::test(start_paused = true)]
async fn a_handover_writes_what_is_in_memory_and_the_next_owner_goes_on() {
    let stage = Stage::new(1).await;
    let mut old = stage.open(0).await;
    let run = old.start("a").await;
    let task = stage.workflow_task(&old, "w").await;
    old.complete(&task, vec![activity(3)]).await.unwrap();
    let charge = stage.activity_task(&old, "w").await;
    let waiting = old.handle.submit(Operation::AwaitClose(Target::Execution(run))).unwrap();
    old.faults.hold_commits(true);
    let decided = old.handle.submit(start("b")).unwrap();
    stage.rest().await;
    old.stopper.take().unwrap().stop();
    stage.rest().await;
    assert!(!old.handle.is_stopped(), "it has something to write");
    old.faults.hold_commits(false);
    started(stage.soon(decided).await.unwrap());
    assert_eq!(stage.soon(waiting).await.unwrap(), Err(Refusal::NotOwner));
    stage.soon(old.handle.stopped()).await;
    assert_eq!(old.call(start("c")).await, Err(Refusal::NotOwner));

    stage.fleet.take_offers();
    let owner = stage.open(0).await;
    let offer = stage.offer(&owner, OfferKind::Activity).await;
    assert_eq!(owner.take(&offer, "x").await, Ok(Answer::Gone), "the attempt is known to run");
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
    stage.offer(&owner, OfferKind::Workflow).await;
    let view = owner.describe(run).await;
    assert_eq!(view.activities, []);
}

#[tokio::test(start_paused = true)]
async fn a_decision_can_be_answered_to_the_next_owner_after_a_handover() {
    let stage = Stage::new(1).await;
    let mut old = stage.open(0).await;
    old.start("a").await;
    let task = stage.workflow_task(&old, "w").await;
    old.stop().await;
    let owner = stage.open(0).await;
    owner.complete(&task, vec![finish()]).await.unwrap();
}

fn timer(name: &str, millis: u64) -> Command {
    Command::StartTimer { timer_id: TimerName::new(name).unwrap(), duration: DurationMs::new("duration", millis).unwrap() }
}

#[tokio::test(start_paused = true)]
async fn near_deadlines_are_armed_when_they_are_durable() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![timer("far", 3_600_000)]).await.unwrap();
    assert!(stage.fleet.inner().armed.is_empty());
    owner.signal(run, "s").await.unwrap();
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![timer("near", 500)]).await.unwrap();
    stage.rest().await;
    let armed = stage.fleet.inner().armed.clone();
    assert_eq!(armed.iter().map(|(_, id, _)| *id).collect::<Vec<_>>(), [run]);
    // A wake that comes early is kept armed by the owner itself.
    owner.call(input(run, Input::Wake)).await.unwrap();
    stage.clock.sleep(Duration::from_secs(1)).await;
    assert!(stage.fleet.inner().offers.iter().any(|offer| offer.execution_id == run), "in time, not when something else wakes the run");
    stage.workflow_task(&owner, "w").await;
}

#[tokio::test(start_paused = true)]
async fn when_one_deadline_has_passed_the_next_one_is_armed() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![timer("first", 20_000), timer("second", 90_000)]).await.unwrap();
    let decided = stage.clock.now();
    let due = async || stage.store.due(&[ShardId(0)], Timestamp::from_millis(i64::MAX), 10).await.unwrap();
    let row = |millis| (ShardId(0), DueRow { execution_id: run, due_at: decided.plus(DurationMs::new("duration", millis).unwrap()) });
    assert_eq!(due().await, [row(20_000)]);
    stage.clock.sleep(Duration::from_secs(21)).await;
    owner.call(input(run, Input::Wake)).await.unwrap();
    assert_eq!(due().await, [row(90_000)]);
    stage.clock.sleep(Duration::from_secs(70)).await;
    owner.call(input(run, Input::Wake)).await.unwrap();
    assert_eq!(due().await, []);
}

/// What a takeover waits for is counted in round trips: each is 100 ms here.
#[tokio::test(start_paused = true)]
async fn a_takeover_is_two_round_trips_to_the_store_with_the_configuration_beside_them() {
    let stage = Stage::new(1).await;
    let (faults, clock) = (Faults::new(), stage.clock.clone());
    faults.set_pace(Pace(Box::new(move || {
        let clock = clock.clone();
        Box::pin(async move { clock.sleep(Duration::from_millis(100)).await })
    })));
    let (_config, receiver) = watch::channel(Arc::new(ShardConfig::default()));
    let deps = ShardDeps {
        store: Arc::new(Faulty { store: stage.store.clone(), faults }),
        clock: stage.clock.clone(),
        ids: stage.ids.clone(),
        neighbours: stage.fleet.clone(),
        config: receiver,
        tuning: Tuning::default(),
        memory: Memory::new(u64::MAX),
    };
    let began = stage.clock.monotonic();
    let newest = stage.clock.sleep(Duration::from_millis(150));
    let _open = open_when(ShardId(0), deps, newest).await.unwrap();
    let took = stage.clock.monotonic() - began;
    assert!((Duration::from_millis(200)..Duration::from_millis(300)).contains(&took), "{took:?}");
}
