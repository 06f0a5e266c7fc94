//! The first workflow task in the answer to a start.

use super::stage::{Owner, Stage, finish, signal, signals, start_operation, worker_id};
use crate::shard::neighbours::OfferKind;
use crate::shard::operation::{Answer, Operation, Refusal, StartOperation, TakenWorkflowTask, Target};
use harvest_ids::{EventId, ExecutionId, RequestId};
use harvest_runtime::Clock;
use harvest_workflow_core::decision::Reject;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::state::Status;
use std::time::Duration;

fn eager(id: &str, request: &str, worker: &str) -> Operation {
    let request_id = Some(RequestId::new(request).unwrap());
    Operation::Start(Box::new(StartOperation { request_id, eager_worker: Some(worker_id(worker)), ..start_operation(id) }))
}

/// The run that answers, and its first task if that came along.
fn started(answer: Result<Answer, Refusal>) -> (ExecutionId, Option<TakenWorkflowTask>) {
    match answer {
        Ok(Answer::Started { execution_id, task, .. }) => (execution_id, task.map(|task| *task)),
        other => panic!("{other:?} instead of a started run"),
    }
}

async fn given(owner: &Owner, id: &str) -> TakenWorkflowTask {
    started(owner.call(eager(id, "r", "w")).await).1.expect("the task comes along")
}

#[tokio::test(start_paused = true)]
async fn a_run_without_steps_is_two_commits_and_nobody_else_hears_of_it() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let (run, task) = started(owner.call(eager("a", "r", "w")).await);
    let task = task.expect("the task comes along");
    assert_eq!(owner.faults.commits(), 1);
    assert_eq!((task.token.execution_id, task.token.attempt.0, &task.token.dispatch.worker_id), (run, 1, &worker_id("w")));
    assert_eq!((task.first_event, task.last_event, task.events.as_ref().unwrap().len()), (EventId(1), EventId(1), 1));
    stage.clock.sleep(Duration::from_secs(5)).await;
    owner.complete(&task, vec![finish()]).await.unwrap();
    assert_eq!((owner.faults.commits(), owner.describe(run).await.status), (2, Status::Completed));
    stage.events(0, run).await;
    stage.clock.sleep(Duration::from_secs(20)).await;
    assert_eq!(stage.fleet.take_offers(), []);
}

#[tokio::test(start_paused = true)]
async fn starts_that_share_a_commit_each_bring_their_task() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.hold_commits(true);
    let first = owner.handle.submit(eager("first", "r", "w")).unwrap();
    stage.rest().await;
    let others: Vec<_> = (0..5).map(|number| owner.handle.submit(eager(&format!("run-{number}"), "r", "w")).unwrap()).collect();
    stage.rest().await;
    owner.faults.hold_commits(false);
    assert!(started(stage.soon(first).await.unwrap()).1.is_some());
    for other in others {
        assert!(started(stage.soon(other).await.unwrap()).1.is_some());
    }
    assert_eq!((owner.faults.commits(), stage.fleet.take_offers()), (2, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_start_brings_the_same_task_while_its_worker_has_it_and_none_to_others() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let task = given(&owner, "a").await;
    let run = task.token.execution_id;
    owner.signal(run, "news").await.unwrap();
    let again = given(&owner, "a").await;
    assert_eq!((&again.token, again.last_event, &again.events), (&task.token, task.last_event, &task.events), "it ends where the task did");
    assert_eq!(started(owner.call(eager("a", "r", "x")).await), (run, None), "another worker asks for it");
    assert_eq!(started(owner.call(eager("a", "r2", "w")).await), (run, None), "another start found the run");
    owner.complete(&task, Vec::new()).await.unwrap();
    assert_eq!(started(owner.call(eager("a", "r", "w")).await), (run, None), "it is decided");
    let next = stage.workflow_task(&owner, "w").await;
    owner.complete(&next, vec![finish()]).await.unwrap();
    assert_eq!(started(owner.call(eager("a", "r", "w")).await), (run, None), "the run has ended");
    assert_eq!(signals(&stage.events(0, run).await), ["news"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_matching_has_given_out_is_not_given_again() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let plain = StartOperation { request_id: Some(RequestId::new("r").unwrap()), ..start_operation("a") };
    let (run, none) = started(owner.call(Operation::Start(Box::new(plain))).await);
    assert_eq!(none, None);
    let offer = stage.offer(&owner, OfferKind::Workflow).await;
    let task = started(owner.call(eager("a", "r", "w")).await).1.expect("nobody has taken it yet");
    assert_eq!(owner.take(&offer, "x").await, Ok(Answer::Gone));
    assert_eq!(task.token.execution_id, run);
    let other = owner.start("b").await;
    stage.workflow_task(&owner, "x").await;
    assert_eq!(
        started(owner.call(Operation::Start(Box::new(StartOperation { eager_worker: Some(worker_id("w")), ..start_operation("b") }))).await),
        (other, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_with_the_task_loses_it_by_its_timeout() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let first = given(&owner, "a").await;
    stage.clock.sleep(Duration::from_millis(9_900)).await;
    assert_eq!(stage.fleet.take_offers(), []);
    stage.clock.sleep(Duration::from_millis(200)).await;
    let second = stage.workflow_task(&owner, "x").await;
    assert_eq!(second.token.attempt.0, 2);
    assert!(matches!(owner.complete(&first, vec![finish()]).await, Err(Refusal::Reject(Reject::StaleTask { .. }))));
    owner.complete(&second, vec![finish()]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_owner_dies_before_its_answer_is_heard_waits_for_any_worker_of_the_next() {
    let stage = Stage::new(1).await;
    let old = stage.open(0).await;
    let first = given(&old, "a").await;
    old.kill();
    let owner = stage.open(0).await;
    assert!(matches!(owner.complete(&first, vec![finish()]).await, Err(Refusal::Reject(Reject::StaleTask { .. }))), "as with any task that was taken");
    let task = stage.workflow_task(&owner, "x").await;
    assert_eq!((task.token.execution_id, task.token.attempt.0), (first.token.execution_id, 1), "no timeout had to be waited for, and no attempt was spent");
    owner.complete(&task, vec![finish()]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_repeated_to_the_next_owner_brings_its_task_too() {
    let stage = Stage::new(1).await;
    let old = stage.open(0).await;
    let first = given(&old, "a").await;
    old.kill();
    let owner = stage.open(0).await;
    let task = given(&owner, "a").await;
    assert_eq!((task.token.execution_id, task.token.attempt.0), (first.token.execution_id, 1));
    stage.rest().await;
    for offer in stage.fleet.take_offers() {
        assert_eq!(owner.take(&offer, "x").await, Ok(Answer::Gone));
    }
    owner.complete(&task, vec![finish()]).await.unwrap();
    assert_eq!(owner.faults.commits(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_does_not_wait_for_news_of_its_run_that_the_task_would_show() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.hold_commits(true);
    let starting = owner.handle.submit(eager("a", "r", "w")).unwrap();
    stage.rest().await;
    let signalled = owner.handle.submit(signal(Target::Key(super::stage::key("a")), "news")).unwrap();
    stage.rest().await;
    owner.faults.hold_commits(false);
    let (run, task) = started(stage.soon(starting).await.unwrap());
    assert_eq!(task, None);
    stage.soon(signalled).await.unwrap().unwrap();
    let task = stage.workflow_task(&owner, "w").await;
    assert_eq!((task.token.execution_id, task.last_event), (run, EventId(2)));
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_batch_is_poisoned_by_a_neighbour_still_brings_its_task() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.poison("bad");
    owner.faults.hold_commits(true);
    let first = owner.handle.submit(eager("first", "r", "w")).unwrap();
    stage.rest().await;
    let bad = StartOperation { input: harvest_workflow_core::payload::Payload::json("\"bad\""), ..start_operation("bad") };
    let bad = owner.handle.submit(Operation::Start(Box::new(bad))).unwrap();
    let good = owner.handle.submit(eager("good", "r", "w")).unwrap();
    stage.rest().await;
    owner.faults.hold_commits(false);
    assert!(started(stage.soon(first).await.unwrap()).1.is_some());
    assert!(matches!(stage.soon(bad).await.unwrap(), Err(Refusal::Poisoned(_))));
    let (run, task) = started(stage.soon(good).await.unwrap());
    owner.complete(&task.expect("the task comes along"), vec![finish()]).await.unwrap();
    let events = stage.events(0, run).await;
    assert!(matches!(events.last().unwrap().kind, EventKind::WorkflowCompleted { .. }));
}
