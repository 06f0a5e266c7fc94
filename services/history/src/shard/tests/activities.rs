//! Attempts: starts that ride along, workers that fall silent, owners that change in between.

use super::faulty::Fate;
use super::stage::{Owner, Stage, activity, close_activity, count, done, finish, start_operation, started, worker_id};
use crate::shard::neighbours::OfferKind;
use crate::shard::operation::{Answer, Operation, Refusal, StartOperation, TakenActivityTask};
use harvest_ids::{DurationMs, ExecutionId};
use harvest_runtime::Clock;
use harvest_workflow_core::decision::Reject;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::record::{Control, Record};
use std::time::Duration;

/// A run with one activity, whose first attempt a worker has.
async fn charging(stage: &Stage, attempts: u32) -> (Owner, ExecutionId, TakenActivityTask) {
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![activity(attempts)]).await.unwrap();
    let charge = stage.activity_task(&owner, "w").await;
    (owner, run, charge)
}

async fn announce(owner: &Owner, charge: &TakenActivityTask) -> (usize, usize) {
    let answer = owner.call(Operation::Announce { worker_id: worker_id("w"), tokens: vec![charge.token.clone()] }).await;
    match answer {
        Ok(Answer::Announced { cancel_requested, lost }) => (cancel_requested.len(), lost.len()),
        other => panic!("{other:?}"),
    }
}

fn starts_of(records: &[Record]) -> usize {
    records.iter().filter(|record| matches!(record, Record::Control(Control::ActivityAttemptStarted { .. }))).count()
}

#[tokio::test(start_paused = true)]
async fn a_run_of_one_activity_is_four_commits() {
    let stage = Stage::new(1).await;
    let (owner, run, charge) = charging(&stage, 3).await;
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
    let task = stage.workflow_task(&owner, "w").await;
    assert_eq!(task.first_event, task.run.last_event.min(harvest_ids::EventId(2)), "a sticky worker gets only what is new");
    owner.complete(&task, vec![finish()]).await.unwrap();
    assert_eq!(owner.faults.commits(), 4);
    assert_eq!(stage.events(0, run).await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_have_the_run_in_memory_gets_its_whole_history() {
    let stage = Stage::new(1).await;
    let (owner, _, charge) = charging(&stage, 3).await;
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
    let task = stage.workflow_task(&owner, "x").await;
    assert_eq!(task.first_event.0, 1, "the last decision was the work of another");
    owner.complete(&task, vec![finish()]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_lost_with_its_owner_is_offered_again_and_its_completion_adopted() {
    let stage = Stage::new(1).await;
    let (old, run, charge) = charging(&stage, 3).await;
    assert_eq!(starts_of(&stage.records(0, run).await), 0, "it rides along with the next write");
    old.kill();
    let owner = stage.open(0).await;
    let offer = stage.offer(&owner, OfferKind::Activity).await;
    assert_eq!(offer.execution_id, run);
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
    assert_eq!(owner.take(&offer, "x").await, Ok(Answer::Gone));
    assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::ActivityCompleted { .. })), 1);
    assert_eq!(starts_of(&stage.records(0, run).await), 1);
}

#[tokio::test(start_paused = true)]
async fn an_announcement_before_the_new_owner_offers_again_keeps_the_attempt_with_its_worker() {
    let stage = Stage::new(1).await;
    let (old, run, charge) = charging(&stage, 3).await;
    old.kill();
    let owner = stage.open(0).await;
    assert_eq!(announce(&owner, &charge).await, (0, 0));
    stage.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(stage.fleet.take_offers(), [], "nobody else is offered it");
    assert_eq!(owner.describe(run).await.activities[0].worker_id, Some(worker_id("w")));
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_two_dispatches_of_one_attempt_only_the_newer_counts() {
    let stage = Stage::new(1).await;
    let (old, run, charge) = charging(&stage, 3).await;
    old.kill();
    let owner = stage.open(0).await;
    let again = stage.activity_task(&owner, "x").await;
    assert_eq!(again.token.attempt, charge.token.attempt);
    assert!(matches!(owner.call(close_activity(&charge.token, done("1"))).await, Err(Refusal::Reject(Reject::StaleTask { .. }))));
    assert_eq!(announce(&owner, &charge).await, (0, 1), "its worker is told that it lost it");
    owner.call(close_activity(&again.token, done("2"))).await.unwrap();
    assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::ActivityCompleted { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn a_decision_of_a_workflow_task_whose_start_was_lost_is_refused_and_the_task_offered_again() {
    let stage = Stage::new(1).await;
    let old = stage.open(0).await;
    let run = old.start("a").await;
    let task = stage.workflow_task(&old, "w").await;
    old.kill();
    let owner = stage.open(0).await;
    assert!(matches!(owner.complete(&task, vec![finish()]).await, Err(Refusal::Reject(Reject::StaleTask { .. }))));
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![finish()]).await.unwrap();
    stage.events(0, run).await;
}

#[tokio::test(start_paused = true)]
async fn an_activity_that_may_run_only_once_is_durably_started_before_its_worker_gets_it() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![activity(1)]).await.unwrap();
    let offer = stage.offer(&owner, OfferKind::Activity).await;
    owner.faults.hold_commits(true);
    let take = Operation::TakeTask { execution_id: run, activity_id: offer.activity_id, worker_id: worker_id("w") };
    let mut taken = owner.handle.submit(take).unwrap();
    stage.rest().await;
    assert!(taken.try_recv().is_err());
    owner.faults.hold_commits(false);
    assert!(matches!(stage.soon(taken).await.unwrap(), Ok(Answer::ActivityTask(_))));
    assert_eq!(starts_of(&stage.records(0, run).await), 1);
    owner.kill();
    let owner = stage.open(0).await;
    let offer = stage.offer(&owner, OfferKind::Activity).await;
    assert_eq!(owner.take(&offer, "x").await, Ok(Answer::Gone), "it is not run a second time");
}

#[tokio::test(start_paused = true)]
async fn a_silent_attempt_is_lost_after_ten_seconds_and_tried_again() {
    let stage = Stage::new(1).await;
    let (owner, run, charge) = charging(&stage, 3).await;
    for _ in 0..3 {
        stage.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(announce(&owner, &charge).await, (0, 0));
    }
    stage.clock.sleep(Duration::from_secs(9)).await;
    assert_eq!(owner.describe(run).await.activities[0].attempt.0, 1);
    stage.clock.sleep(Duration::from_secs(3)).await;
    let view = owner.describe(run).await.activities[0].clone();
    assert_eq!((view.attempt.0, view.last_failure.unwrap().error_type.as_str()), (2, "WorkerLost"));
    assert_eq!(announce(&owner, &charge).await, (0, 1));
    // No timer scanner here: its due row brings the next attempt.
    let wake = super::stage::input(run, harvest_workflow_core::input::Input::Wake);
    owner.call(wake).await.unwrap();
    assert_eq!(stage.activity_task(&owner, "x").await.token.attempt.0, 2);
}

#[tokio::test(start_paused = true)]
async fn silence_does_not_count_while_no_frontend_lives() {
    let stage = Stage::new(1).await;
    let (owner, run, charge) = charging(&stage, 3).await;
    stage.fleet.inner().frontends_alive = false;
    stage.clock.sleep(Duration::from_secs(60)).await;
    stage.fleet.inner().frontends_alive = true;
    stage.clock.sleep(Duration::from_secs(8)).await;
    assert_eq!(owner.describe(run).await.activities[0].attempt.0, 1);
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_of_a_run_that_is_not_in_memory_is_kept_by_its_announcements() {
    let stage = Stage::new(1).await;
    let (mut old, run, charge) = charging(&stage, 3).await;
    old.stop().await;
    let owner = stage.open_with(0, crate::shard::actor::Tuning { cached_runs: 1, ..Default::default() }, stage.clock.clone()).await;
    stage.clock.sleep(Duration::from_secs(1)).await;
    for number in 0..6 {
        announce(&owner, &charge).await;
        owner.start(&format!("other-{number}")).await; // pushes the run out of memory
        stage.clock.sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(owner.describe(run).await.activities[0].attempt.0, 1);
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_workflow_task_whose_start_is_only_in_memory_times_out_all_the_same() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let operation = StartOperation { workflow_task_timeout: DurationMs::from_millis_const(3_000), ..start_operation("a") };
    started(owner.call(Operation::Start(Box::new(operation))).await);
    let task = stage.workflow_task(&owner, "w").await;
    stage.clock.sleep(Duration::from_secs(4)).await;
    assert!(matches!(owner.complete(&task, vec![finish()]).await, Err(Refusal::Reject(Reject::StaleTask { .. }))));
    let again = stage.workflow_task(&owner, "x").await;
    assert_eq!(again.token.attempt.0, 2);
    assert_eq!(again.first_event.0, 1);
    owner.complete(&again, vec![finish()]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_taking_could_not_be_stored_is_offered_again() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![activity(1)]).await.unwrap();
    let offer = stage.offer(&owner, OfferKind::Activity).await;
    owner.faults.script([Fate::Poisoned]);
    assert!(matches!(owner.take(&offer, "w").await, Err(Refusal::Poisoned(_))));
    let charge = stage.activity_task(&owner, "w").await;
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
}
