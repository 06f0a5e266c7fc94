//! Batches on their way: group commit, poison, unknown outcomes, a store that is away.

use super::faulty::Fate;
use super::stage::{Owner, Stage, activity, close_activity, count, done, finish, key, signals, start, started};
use crate::shard::actor::{ShardConfig, Tuning};
use crate::shard::operation::{Answer, Operation, Refusal, Target};
use futures::future::join_all;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::payload::Payload;
use std::sync::Arc;

fn submit(owner: &Owner, operation: Operation) -> tokio::sync::oneshot::Receiver<Result<Answer, Refusal>> {
    owner.handle.submit(operation).unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_answer_leaves_before_its_batch_has_committed() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.hold_commits(true);
    let mut answer = submit(&owner, start("a"));
    stage.rest().await;
    assert!(answer.try_recv().is_err());
    assert!(stage.fleet.take_offers().is_empty(), "nothing is dispatched either");
    owner.faults.hold_commits(false);
    started(stage.soon(answer).await.unwrap());
    stage.rest().await;
    assert_eq!(stage.fleet.take_offers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lone_decision_is_sent_at_once_and_what_is_decided_meanwhile_goes_in_one_batch() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.hold_commits(true);
    let mut answers = vec![submit(&owner, start("first"))];
    stage.rest().await;
    for number in 0..100 {
        answers.push(submit(&owner, start(&format!("later-{number}"))));
        stage.rest().await;
    }
    owner.faults.hold_commits(false);
    for answer in answers {
        started(stage.soon(answer).await.unwrap());
    }
    let sizes: Vec<usize> = owner.faults.batches().iter().map(|batch| batch.runs_new.len()).collect();
    assert_eq!(sizes, [1, 100]);
}

#[tokio::test(start_paused = true)]
async fn sixty_four_concurrent_starts_are_few_commits() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let starts = (0..64).map(|number| owner.call(start(&format!("run-{number}"))));
    let ids: std::collections::BTreeSet<_> = join_all(starts.collect::<Vec<_>>()).await.into_iter().map(started).collect();
    assert_eq!(ids.len(), 64);
    assert!(owner.faults.commits() <= 4, "{} commits", owner.faults.commits());
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_at_most_its_bound_of_decisions_also_when_all_waited_for_one_run() {
    let stage = Stage::new(1).await;
    let mut old = stage.open(0).await;
    let run = old.start("a").await;
    old.stop().await;
    let owner = stage.open(0).await;
    let signals: Vec<_> = (0..1000).map(|number| submit(&owner, super::stage::signal(Target::Execution(run), &format!("s{number}")))).collect();
    for signal in signals {
        stage.soon(signal).await.unwrap().unwrap();
    }
    let records: Vec<u32> = owner.faults.batches().iter().flat_map(|batch| batch.history.iter().map(|row| row.record_count)).collect();
    assert_eq!(records.iter().sum::<u32>(), 1000);
    assert!(records.iter().all(|count| *count <= 256), "{records:?}");
    assert_eq!(owner.faults.loads(), 1, "however many wait for it");
}

#[tokio::test(start_paused = true)]
async fn of_a_poisoned_batch_the_offender_alone_gets_the_error() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let old = owner.start("old").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.faults.poison("poison");
    owner.faults.hold_commits(true);
    let first = submit(&owner, start("first"));
    stage.rest().await;
    let good = submit(&owner, super::stage::signal(Target::Execution(old), "good"));
    let decided = submit(&owner, super::stage::complete(&task.token, Vec::new(), vec![activity(3)]));
    let bad = submit(&owner, super::stage::signal(Target::Execution(old), "poison"));
    let again = submit(&owner, super::stage::signal(Target::Execution(old), "good"));
    let new = submit(&owner, start("new"));
    stage.rest().await;
    owner.faults.hold_commits(false);
    started(stage.soon(first).await.unwrap());
    assert!(stage.soon(good).await.unwrap().is_ok());
    assert!(matches!(stage.soon(bad).await.unwrap(), Err(Refusal::Poisoned(_))));
    assert!(matches!(stage.soon(again).await.unwrap(), Ok(Answer::Decided { fresh: false, .. })), "it repeats a request");
    let new = started(stage.soon(new).await.unwrap());
    assert!(stage.soon(decided).await.unwrap().is_ok(), "the start of the task that it answers was undone and done again");
    let events = stage.events(0, old).await;
    assert_eq!(signals(&events), ["good"]);
    assert_eq!(count(&events, |kind| matches!(kind, EventKind::ActivityScheduled(_))), 1);
    stage.events(0, new).await;
    // The runs go on.
    let charge = stage.activity_task(&owner, "w").await;
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_start_that_a_worker_knows_of_survives_a_poisoned_batch() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let first = stage.workflow_task(&owner, "w").await;
    owner.complete(&first, vec![activity(3)]).await.unwrap();
    let charge = stage.activity_task(&owner, "w").await;
    owner.faults.poison("poison");
    let bad = owner.signal(run, "poison").await;
    assert!(matches!(bad, Err(Refusal::Poisoned(_))));
    stage.rest().await;
    assert!(stage.fleet.take_offers().is_empty(), "the attempt is not offered to another worker");
    assert_eq!(owner.describe(run).await.activities[0].state, "STARTED");
    owner.call(close_activity(&charge.token, done("1"))).await.unwrap();
    assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::ActivityCompleted { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn a_poisoned_decision_of_a_worker_fails_its_workflow_task_and_the_run_goes_on_later() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.faults.poison("poison");
    // Two runs in one batch, so that it is not by their number that the offender is known.
    let next = Command::ContinueAsNew { input: Payload::json("poison"), workflow_type: None, task_queue: None };
    assert!(matches!(owner.complete(&task, vec![next]).await, Err(Refusal::Poisoned(_))));
    let task = stage.workflow_task(&owner, "w").await;
    assert_eq!(task.token.attempt.0, 2);
    owner.complete(&task, vec![finish()]).await.unwrap();
    stage.events(0, run).await;
}

async fn survives(fate: Fate) {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.script([Fate::Commits, fate]);
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    let first = submit(&owner, super::stage::signal(Target::Execution(run), "one"));
    stage.rest().await;
    let second = submit(&owner, super::stage::signal(Target::Execution(run), "two"));
    assert!(matches!(stage.soon(first).await.unwrap(), Ok(Answer::Decided { fresh: true, .. })), "{fate:?}");
    assert!(matches!(stage.soon(second).await.unwrap(), Ok(Answer::Decided { fresh: true, .. })), "{fate:?}");
    assert!(matches!(owner.signal(run, "one").await, Ok(Answer::Decided { fresh: false, .. })), "{fate:?}");
    owner.complete(&task, vec![activity(1)]).await.unwrap();
    assert_eq!(signals(&stage.events(0, run).await), ["one", "two"], "{fate:?}");
    stage.activity_task(&owner, "w").await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_outcome_is_unknown_is_settled_and_nothing_is_doubled_or_lost() {
    survives(Fate::UnknownLanded).await;
    survives(Fate::UnknownLost).await;
    survives(Fate::UnknownLate).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for_a_while() {
    survives(Fate::Unavailable).await;
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    owner.faults.fail_reads(true);
    owner.faults.script([Fate::UnknownLost]);
    let mut answer = submit(&owner, super::stage::signal(Target::Execution(run), "one"));
    harvest_runtime::Clock::sleep(&*stage.clock, std::time::Duration::from_secs(3)).await;
    assert!(answer.try_recv().is_err(), "settling cannot reach the store either");
    owner.faults.fail_reads(false);
    stage.soon(answer).await.unwrap().unwrap();
    assert_eq!(signals(&stage.events(0, run).await), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_is_acknowledged_only_after_older_decisions_have_committed() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    stage.rest().await;
    let told = || stage.fleet.inner().acknowledged.iter().map(|(_, _, version)| *version).collect::<Vec<_>>();
    assert_eq!(told(), [(0, 0)]);
    owner.faults.hold_commits(true);
    let first = submit(&owner, start("in-flight"));
    stage.rest().await;
    let second = submit(&owner, start("open"));
    stage.rest().await;
    owner.config.send_replace(Arc::new(ShardConfig { version: (1, 5), ..ShardConfig::default() }));
    stage.rest().await;
    assert_eq!(told(), [(0, 0)]);
    owner.faults.script([Fate::Commits, Fate::Unavailable]);
    owner.faults.hold_commits(false);
    stage.soon(first).await.unwrap().unwrap();
    stage.rest().await;
    assert_eq!(told(), [(0, 0)], "the second decision has not committed");
    stage.soon(second).await.unwrap().unwrap();
    stage.rest().await;
    assert_eq!(told(), [(0, 0), (1, 5)]);
    let run = owner.start("under-the-new-one").await;
    let events = stage.events(0, run).await;
    assert!(matches!(&events[0].kind, EventKind::WorkflowStarted(started) if started.config_version == (1, 5)));
}

#[tokio::test(start_paused = true)]
async fn a_full_inbox_refuses_at_once() {
    let stage = Stage::new(1).await;
    let owner = stage.open_with(0, Tuning { inbox_operations: 8, ..Tuning::default() }, stage.clock.clone()).await;
    owner.faults.hold_commits(true);
    let mut waiting = Vec::new();
    let refusal = loop {
        match owner.handle.submit(start(&format!("run-{}", waiting.len()))) {
            Ok(answer) => waiting.push(answer),
            Err(refusal) => break refusal,
        }
        stage.rest().await;
        assert!(waiting.len() < 2000, "the loop takes without bound");
    };
    assert_eq!(refusal, Refusal::Overloaded { limit: "shard.inbox_share" }, "all are new runs of one namespace");
    assert_eq!(waiting.len(), 4);
    owner.faults.hold_commits(false);
    for answer in waiting {
        started(stage.soon(answer).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn operations_that_wait_for_a_slow_read_are_bounded_too() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.freeze(true);
    let mut waiting = Vec::new();
    while let Ok(answer) = owner.handle.submit(Operation::Locate(Target::Key(key(&format!("run-{}", waiting.len()))))) {
        waiting.push(answer);
        if waiting.len() % 1000 == 0 {
            stage.rest().await;
        }
        assert!(waiting.len() < 50_000, "the loop takes without bound");
    }
    owner.faults.freeze(false);
    for answer in waiting {
        assert_eq!(stage.soon(answer).await.unwrap(), Err(Refusal::NotFound));
    }
}
