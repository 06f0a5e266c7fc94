//! Eager activities and decisions ahead.

use super::stage::{Owner, Stage, activity, close_activity, count, done, finish, signal, worker_id};
use crate::shard::neighbours::OfferKind;
use crate::shard::operation::{Answer, EagerOperation, Given, Operation, Refusal, TakenActivityTask, TakenWorkflowTask, Target};
use harvest_ids::{EventId, ExecutionId, Timestamp};
use harvest_runtime::Clock;
use harvest_wire::worker::DecisionAhead;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::Reject;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::input::{ActivityOutcome, CompleteWorkflowTask, Input, TaskToken};
use harvest_workflow_core::payload::Payload;
use std::collections::BTreeSet;
use std::time::Duration;

fn completing(task: &TakenWorkflowTask, commands: Vec<Command>, wanted: &[usize]) -> Operation {
    let worker_id = task.token.dispatch.worker_id.clone();
    let complete =
        CompleteWorkflowTask { token: task.token.clone(), worker_id, build_id: "b".into(), sdk: "test".into(), consumed_signals: Vec::new(), commands };
    Operation::Eager(Box::new(EagerOperation {
        input: Input::CompleteWorkflowTask(Box::new(complete)),
        eager_commands: wanted.iter().copied().collect(),
        ahead: None,
    }))
}

fn closing(token: &TaskToken, outcome: ActivityOutcome, ahead: DecisionAhead) -> Operation {
    let close = Input::CloseActivity { token: token.clone(), worker_id: token.dispatch.worker_id.clone(), outcome };
    Operation::Eager(Box::new(EagerOperation { input: close, eager_commands: ahead.eager_commands.clone(), ahead: Some(ahead) }))
}

fn ahead(last_event: u64, completed_at: Timestamp, commands: Vec<Command>) -> DecisionAhead {
    let eager_commands = (0..commands.len()).collect();
    DecisionAhead {
        last_event: EventId(last_event),
        completed_at,
        build_id: "b".into(),
        sdk: "test".into(),
        consumed_signals: Vec::new(),
        commands,
        eager_commands,
    }
}

fn given(answer: Result<Answer, Refusal>) -> Given {
    match answer {
        Ok(Answer::Given(given)) => *given,
        other => panic!("{other:?} instead of work"),
    }
}

/// A run whose first decision schedules activities; the worker is given those that it wants.
async fn working(stage: &Stage, attempts: &[u32], wanted: &[usize]) -> (Owner, ExecutionId, Given) {
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    let commands = attempts.iter().map(|attempts| activity(*attempts)).collect();
    let given = given(owner.call(completing(&task, commands, wanted)).await);
    (owner, run, given)
}

fn ids(tasks: &[TakenActivityTask]) -> BTreeSet<u64> {
    tasks.iter().filter_map(|task| task.token.activity_id).map(|id| id.0).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_of_one_activity_is_three_commits_when_its_worker_decides_ahead() {
    let stage = Stage::new(1).await;
    let (owner, run, first) = working(&stage, &[3], &[0]).await;
    assert_eq!(first.new_events.iter().map(|event| event.id.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(owner.faults.commits(), 2);
    let ahead = ahead(3, first.decided_at, vec![finish()]);
    let last = given(owner.call(closing(&first.activities[0].token, done("1"), ahead)).await);
    assert_eq!((last.activities.len(), last.new_events.len(), owner.faults.commits()), (0, 0, 3));
    let events = stage.events(0, run).await;
    assert_eq!(count(&events, |kind| matches!(kind, EventKind::WorkflowCompleted { .. })), 1);
    assert_eq!(events[3].at, first.decided_at, "the result has the time that the code saw");
    assert_eq!(stage.fleet.take_offers(), [], "nothing was offered to anybody");
}

#[tokio::test(start_paused = true)]
async fn only_wanted_activities_are_given_and_the_others_are_offered() {
    let stage = Stage::new(1).await;
    let (owner, _, first) = working(&stage, &[3, 1, 3], &[1, 2, 9]).await;
    assert_eq!(ids(&first.activities), BTreeSet::from([4, 5]));
    let other = stage.activity_task(&owner, "x").await;
    assert_eq!(other.token.activity_id, Some(EventId(3)));
    stage.clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.fleet.take_offers(), []);
}

#[tokio::test(start_paused = true)]
async fn news_that_the_worker_has_not_seen_voids_its_decision_but_not_its_result() {
    let stage = Stage::new(1).await;
    let (owner, run, first) = working(&stage, &[3], &[0]).await;
    owner.signal(run, "news").await.unwrap();
    let answer = owner.call(closing(&first.activities[0].token, done("1"), ahead(3, first.decided_at, vec![finish()]))).await;
    assert!(matches!(answer, Ok(Answer::Decided { fresh: true, .. })), "{answer:?}");
    let task = stage.workflow_task(&owner, "w").await;
    assert_eq!(task.last_event, EventId(5), "the task has both");
    assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::ActivityCompleted { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn a_time_that_the_run_cannot_have_voids_the_decision() {
    let stage = Stage::new(1).await;
    let (owner, run, first) = working(&stage, &[3, 3], &[0, 1]).await;
    let later = first.decided_at.plus(harvest_ids::DurationMs::from_millis_const(60_000));
    let early = Timestamp::from_millis(first.decided_at.as_millis() - 1);
    for (task, at) in first.activities.iter().zip([later, early]) {
        let last = owner.describe(run).await.last_event.0;
        let answer = owner.call(closing(&task.token, done("1"), ahead(last, at, vec![finish()]))).await;
        assert!(matches!(answer, Ok(Answer::Decided { .. })), "{answer:?}");
    }
    assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::WorkflowCompleted { .. })), 0);
}

#[tokio::test(start_paused = true)]
async fn a_decision_ahead_that_the_core_does_not_want_fails_its_task_visibly_and_keeps_the_result() {
    let stage = Stage::new(1).await;
    let (owner, run, first) = working(&stage, &[3], &[0]).await;
    let wrong = ahead(3, first.decided_at, vec![Command::CancelActivity { activity_id: EventId(77) }]);
    let answer = owner.call(closing(&first.activities[0].token, done("1"), wrong)).await;
    assert!(matches!(answer, Ok(Answer::Decided { .. })), "{answer:?}");
    assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::ActivityCompleted { .. })), 1);
    let task = stage.workflow_task(&owner, "w").await;
    assert_eq!(task.token.attempt.0, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_is_given_again_while_its_activities_run_and_is_stale_afterwards() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    let complete = || completing(&task, vec![activity(1)], &[0]);
    let first = given(owner.call(complete()).await);
    let again = given(owner.call(complete()).await);
    assert_eq!((&again.activities, &again.new_events, again.decided_at), (&first.activities, &first.new_events, first.decided_at));
    assert_eq!(owner.faults.commits(), 2);
    owner.call(close_activity(&first.activities[0].token, done("1"))).await.unwrap();
    assert!(matches!(owner.call(complete()).await, Err(Refusal::Reject(Reject::StaleTask { .. }))));
}

#[tokio::test(start_paused = true)]
async fn an_eager_activity_is_with_its_worker_also_for_the_next_owner() {
    let stage = Stage::new(1).await;
    let (old, run, first) = working(&stage, &[3], &[0]).await;
    old.kill();
    let owner = stage.open(0).await;
    let answer = owner.call(Operation::Announce { worker_id: worker_id("w"), tokens: vec![first.activities[0].token.clone()] }).await;
    assert!(matches!(answer, Ok(Answer::Announced { ref lost, .. }) if lost.is_empty()), "{answer:?}");
    stage.clock.sleep(Duration::from_secs(3)).await;
    assert_eq!(stage.fleet.take_offers(), []);
    let last = given(owner.call(closing(&first.activities[0].token, done("1"), ahead(3, first.decided_at, vec![activity(3)]))).await);
    assert_eq!(ids(&last.activities), BTreeSet::from([6]));
    assert_eq!(owner.describe(run).await.activities.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn news_of_the_run_that_given_activities_show_is_durable_when_they_are_given() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.faults.hold_commits(true);
    let decided = owner.handle.submit(completing(&task, vec![activity(3)], &[0])).unwrap();
    stage.rest().await;
    let signalled = owner.handle.submit(signal(Target::Execution(run), "news")).unwrap();
    stage.rest().await;
    owner.faults.hold_commits(false);
    let first = given(stage.soon(decided).await.unwrap());
    let durable: u32 = owner.faults.batches().iter().flat_map(|batch| &batch.history).map(|row| row.event_count).sum();
    assert_eq!(first.activities[0].run.last_event, EventId(4), "the activity shows the signal");
    assert_eq!(durable, 4);
    assert!(stage.soon(signalled).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_poisoned_decision_ahead_costs_the_decision_and_not_the_result() {
    let stage = Stage::new(1).await;
    let (owner, run, first) = working(&stage, &[3], &[0]).await;
    owner.faults.poison("bad");
    let bad = Command::CompleteWorkflow { output: Payload::json("\"bad\"") };
    let answer = owner.call(closing(&first.activities[0].token, done("1"), ahead(3, first.decided_at, vec![bad]))).await;
    assert!(matches!(answer, Ok(Answer::Decided { .. })), "{answer:?}");
    assert_eq!(count(&stage.events(0, run).await, |kind| matches!(kind, EventKind::ActivityCompleted { .. })), 1);
    stage.offer(&owner, OfferKind::Workflow).await;
}

#[tokio::test(start_paused = true)]
async fn an_eager_activity_whose_worker_was_told_nothing_waits_for_any_worker_of_the_next_owner() {
    let stage = Stage::new(1).await;
    let (old, _, first) = working(&stage, &[3], &[0]).await;
    old.kill();
    let owner = stage.open(0).await;
    let again = stage.activity_task(&owner, "x").await;
    assert_eq!(again.token.attempt, first.activities[0].token.attempt, "no silence had to be waited for, and no attempt was spent");
}
