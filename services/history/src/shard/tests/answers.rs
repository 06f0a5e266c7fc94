//! Answers that changed nothing, and owners that have been replaced.

use super::faulty::{Fate, Pace};
use super::stage::{Stage, finish, input, key, start, started};
use crate::shard::operation::{Answer, Operation, Refusal, Target};
use futures::future::join_all;
use harvest_runtime::Clock as _;
use harvest_workflow_core::decision::Reject;
use harvest_workflow_core::input::Input;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn reads_and_refusals_on_clean_runs_share_one_look_at_the_epoch() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![finish()]).await.unwrap();
    stage.rest().await;
    let (looks, commits) = (owner.faults.epoch_reads(), owner.faults.commits());
    let reads = (0..50).map(|_| owner.call(Operation::Locate(Target::Execution(run)))).collect::<Vec<_>>();
    let refused = (0..50).map(|_| owner.call(input(run, Input::StartWorkflowTask { dispatch: task.token.dispatch.clone() }))).collect::<Vec<_>>();
    let (reads, refused) = futures::join!(join_all(reads), join_all(refused));
    assert!(reads.iter().all(|answer| matches!(answer, Ok(Answer::Located { .. }))));
    assert!(refused.iter().all(|answer| matches!(answer, Err(Refusal::Reject(Reject::Closed { .. })))));
    assert!((1..=3).contains(&(owner.faults.epoch_reads() - looks)), "{} looks", owner.faults.epoch_reads() - looks);
    assert_eq!(owner.faults.commits(), commits);
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_task_that_was_answered_in_time_costs_nothing() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![finish()]).await.unwrap();
    stage.rest().await;
    let (looks, commits, loads) = (owner.faults.epoch_reads(), owner.faults.commits(), owner.faults.loads());
    stage.clock.sleep(std::time::Duration::from_secs(60)).await;
    stage.rest().await;
    assert_eq!((owner.faults.epoch_reads(), owner.faults.commits(), owner.faults.loads()), (looks, commits, loads));
}

#[tokio::test(start_paused = true)]
async fn a_read_of_a_run_with_uncommitted_changes_waits_for_its_batch_and_then_for_a_look() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let looks = owner.faults.epoch_reads();
    owner.faults.hold_commits(true);
    let changed = owner.handle.submit(super::stage::signal(Target::Execution(run), "s")).unwrap();
    stage.rest().await;
    let mut read = owner.handle.submit(Operation::Locate(Target::Execution(run))).unwrap();
    let mut repeated = owner.handle.submit(super::stage::signal(Target::Execution(run), "s")).unwrap();
    stage.rest().await;
    assert!(read.try_recv().is_err() && repeated.try_recv().is_err());
    owner.faults.hold_commits(false);
    assert!(stage.soon(changed).await.unwrap().is_ok());
    assert!(matches!(stage.soon(read).await.unwrap(), Ok(Answer::Located { last_event, .. }) if last_event.0 == 2));
    assert!(matches!(stage.soon(repeated).await.unwrap(), Ok(Answer::Decided { fresh: false, .. })));
    assert_eq!(owner.faults.epoch_reads(), looks + 1, "one for both");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_sent_before_a_call_came_does_not_vouch_for_its_answer() {
    let stage = Stage::new(1).await;
    let old = stage.open(0).await;
    let run = old.start("a").await;
    let (commits, clock) = (old.faults.commits(), stage.clock.clone());
    old.faults.set_pace(Pace(Box::new(move || {
        let clock = clock.clone();
        Box::pin(async move { clock.sleep(Duration::from_millis(20)).await })
    })));
    let signalled = old.handle.submit(super::stage::signal(Target::Execution(run), "old")).unwrap();
    // It lands, and the owner falls asleep before it hears so.
    while old.faults.commits() == commits {
        stage.clock.sleep(Duration::from_millis(1)).await;
    }
    old.faults.freeze(true);
    let new = stage.open(0).await;
    new.signal(run, "new").await.unwrap();
    let read = old.handle.submit(Operation::Locate(Target::Execution(run))).unwrap();
    stage.rest().await;
    old.faults.freeze(false);
    assert!(matches!(stage.soon(signalled).await.unwrap(), Ok(Answer::Decided { fresh: true, .. })), "this is true");
    assert_eq!(stage.soon(read).await.unwrap(), Err(Refusal::NotOwner), "and this was: the run has gone on elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_tells_of_an_uncommitted_end_rides_its_batch() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let (one, two) = (owner.start("one").await, owner.start("two").await);
    let end = |run| input(run, Input::Terminate { reason: "enough".to_owned(), request_id: None });
    let looks = owner.faults.epoch_reads();
    // Commits hang; a look at the epoch would be answered.
    owner.faults.hold_commits(true);
    let in_flight = owner.handle.submit(end(one)).unwrap();
    stage.rest().await;
    let in_the_open = owner.handle.submit(end(two)).unwrap();
    let mut refused = [one, two].map(|run| owner.handle.submit(super::stage::signal(Target::Execution(run), "late")).unwrap());
    stage.rest().await;
    assert!(refused.iter_mut().all(|answer| answer.try_recv().is_err()), "nobody knows yet that the runs have ended");
    owner.faults.hold_commits(false);
    for ended in [in_flight, in_the_open] {
        assert!(stage.soon(ended).await.unwrap().is_ok());
    }
    for answer in refused {
        assert!(matches!(stage.soon(answer).await.unwrap(), Err(Refusal::Reject(Reject::Closed { .. }))));
    }
    assert_eq!(owner.faults.epoch_reads(), looks);
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_fence_is_gone_answers_nobody_and_dispatches_nothing() {
    let stage = Stage::new(1).await;
    let old = stage.open(0).await;
    let run = old.start("a").await;
    stage.rest().await;
    old.faults.hold_commits(true);
    let in_flight = old.handle.submit(start("in-flight")).unwrap();
    stage.rest().await;
    let riding = old.handle.submit(super::stage::signal(Target::Execution(run), "open")).unwrap();
    let waiting = old.handle.submit(Operation::AwaitClose(Target::Execution(run))).unwrap();
    stage.rest().await;
    stage.fleet.take_offers();
    let new = stage.open(0).await;
    stage.rest().await;
    let offered = stage.fleet.take_offers();
    let read = old.handle.submit(Operation::Locate(Target::Execution(run))).unwrap();
    old.faults.hold_commits(false);
    for answer in [in_flight, riding, waiting, read] {
        assert_eq!(stage.soon(answer).await.unwrap_or(Err(Refusal::NotOwner)), Err(Refusal::NotOwner));
    }
    assert!(old.handle.is_stopped());
    assert_eq!(old.call(start("late")).await, Err(Refusal::NotOwner));
    stage.rest().await;
    assert_eq!(stage.fleet.take_offers(), [], "only the new owner offers");
    assert_eq!(offered.iter().map(|offer| (offer.execution_id, offer.epoch)).collect::<Vec<_>>(), [(run, harvest_ids::Epoch(2))]);
    assert_eq!(new.call(Operation::Locate(Target::Key(key("in-flight")))).await, Err(Refusal::NotFound));
}

#[tokio::test(start_paused = true)]
async fn a_replaced_owner_with_nothing_to_write_notices_at_a_read_and_at_a_task_that_is_taken() {
    let stage = Stage::new(1).await;
    let old = stage.open(0).await;
    let run = old.start("a").await;
    let offer = stage.offer(&old, crate::shard::neighbours::OfferKind::Workflow).await;
    let new = stage.open(0).await;
    assert_eq!(old.take(&offer, "w").await, Err(Refusal::NotOwner));
    assert_eq!(old.call(Operation::Locate(Target::Execution(run))).await, Err(Refusal::NotOwner));
    assert!(matches!(new.take(&offer, "w").await, Ok(Answer::WorkflowTask(_))));
}

#[tokio::test(start_paused = true)]
async fn a_read_while_a_commit_hangs_on_a_lost_fence_does_not_spin() {
    let stage = Stage::new(1).await;
    let old = stage.open(0).await;
    let run = old.start("a").await;
    old.faults.hold_commits(true);
    let hanging = old.handle.submit(start("b")).unwrap();
    stage.rest().await;
    stage.open(0).await;
    assert_eq!(old.call(Operation::Locate(Target::Execution(run))).await, Err(Refusal::NotOwner));
    assert_eq!(stage.soon(hanging).await.unwrap_or(Err(Refusal::NotOwner)), Err(Refusal::NotOwner));
}

#[tokio::test(start_paused = true)]
async fn a_read_while_a_commit_is_settled_waits_for_that() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    owner.faults.script([Fate::UnknownLost]);
    let written = owner.handle.submit(start("b")).unwrap();
    let read = owner.handle.submit(Operation::Locate(Target::Execution(run))).unwrap();
    assert!(matches!(stage.soon(read).await.unwrap(), Ok(Answer::Located { .. })));
    started(stage.soon(written).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn reads_that_fail_say_so_and_work_again_later() {
    let stage = Stage::new(1).await;
    let mut old = stage.open(0).await;
    let run = old.start("a").await;
    old.stop().await;
    let owner = stage.open(0).await;
    owner.faults.fail_reads(true);
    let read = owner.call(Operation::Locate(Target::Execution(run))).await;
    assert!(matches!(read, Err(Refusal::Unavailable(_))), "{read:?}");
    owner.faults.fail_reads(false);
    assert!(matches!(owner.call(Operation::Locate(Target::Execution(run))).await, Ok(Answer::Located { .. })));
    assert_eq!(owner.call(Operation::Locate(Target::Key(key("unknown")))).await, Err(Refusal::NotFound));
    stage.workflow_task(&owner, "w").await;
}
