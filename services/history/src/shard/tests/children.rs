//! Children on another shard, and messages that are repeated.

use super::stage::{Owner, Stage, count, finish, id_on, key};
use crate::shard::operation::{Answer, Operation, Refusal, Target};
use harvest_ids::{ShardId, WorkflowId};
use harvest_workflow_core::command::{Command, StartChildWorkflow};
use harvest_workflow_core::event::{Event, EventKind};
use harvest_workflow_core::payload::Payload;
use std::time::Duration;

fn child(id: &str) -> Command {
    Command::StartChildWorkflow(StartChildWorkflow {
        workflow_type: key(id).workflow_type,
        workflow_id: WorkflowId::new(id).unwrap(),
        task_queue: None,
        input: Payload::null(),
        execution_timeout: None,
        detached: false,
    })
}

async fn assert_outboxes_are_empty(stage: &Stage) {
    harvest_runtime::Clock::sleep(&*stage.clock, Duration::from_secs(10)).await;
    for shard in [0, 1] {
        assert_eq!(stage.store.outbox(ShardId(shard), 0, 100).await.unwrap(), []);
    }
}

fn child_ended(events: &[Event]) -> usize {
    count(events, |kind| matches!(kind, EventKind::ChildWorkflowCompleted { .. }))
}

/// A parent on shard 0 has started a child on shard 1.
async fn family(stage: &Stage) -> (Owner, Owner, harvest_ids::ExecutionId) {
    let (zero, one) = (stage.open(0).await, stage.open(1).await);
    let parent = zero.start(&id_on(0, "parent")).await;
    let task = stage.workflow_task(&zero, "w").await;
    zero.complete(&task, vec![child(&id_on(1, "child"))]).await.unwrap();
    (zero, one, parent)
}

#[tokio::test(start_paused = true)]
async fn a_child_on_another_shard_is_started_and_its_end_told_once() {
    let stage = Stage::new(2).await;
    let (zero, one, parent) = family(&stage).await;
    let task = stage.workflow_task(&one, "w").await;
    assert_eq!(task.run.parent_execution_id, Some(parent));
    one.complete(&task, vec![finish()]).await.unwrap();
    let task = stage.workflow_task(&zero, "w").await;
    zero.complete(&task, vec![finish()]).await.unwrap();
    assert_eq!(child_ended(&stage.events(0, parent).await), 1);
    assert_outboxes_are_empty(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_are_delivered_again_change_nothing() {
    let stage = Stage::new(2).await;
    stage.fleet.inner().lost_confirmations = 3;
    let (zero, one, parent) = family(&stage).await;
    let task = stage.workflow_task(&one, "w").await;
    harvest_runtime::Clock::sleep(&*stage.clock, Duration::from_secs(5)).await;
    stage.fleet.inner().lost_confirmations = 3;
    one.complete(&task, vec![finish()]).await.unwrap();
    let task = stage.workflow_task(&zero, "w").await;
    harvest_runtime::Clock::sleep(&*stage.clock, Duration::from_secs(5)).await;
    zero.complete(&task, vec![finish()]).await.unwrap();
    assert!(stage.fleet.inner().deliveries >= 8);
    assert_eq!(child_ended(&stage.events(0, parent).await), 1);
    assert_outboxes_are_empty(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_id_is_held_is_refused() {
    let stage = Stage::new(2).await;
    let holder = {
        let mut one = stage.open(1).await;
        let holder = one.start(&id_on(1, "child")).await;
        one.stop().await;
        holder
    };
    stage.fleet.inner().lost_confirmations = 2;
    let (zero, _one, parent) = family(&stage).await;
    let task = stage.workflow_task(&zero, "w").await;
    zero.complete(&task, vec![finish()]).await.unwrap();
    let events = stage.events(0, parent).await;
    let refused = |kind: &EventKind| matches!(kind, EventKind::ChildWorkflowFailed { failure, .. } if failure.error_type == "ChildAlreadyRunning");
    assert_eq!(count(&events, refused), 1);
    assert_eq!(stage.events(1, holder).await.len(), 1);
    assert_outboxes_are_empty(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_child_may_have_the_id_of_a_closed_run_and_two_deliveries_at_once_start_it_once() {
    let stage = Stage::new(2).await;
    let old = {
        let mut one = stage.open(1).await;
        let old = one.start(&id_on(1, "child")).await;
        let task = stage.workflow_task(&one, "w").await;
        one.complete(&task, vec![finish()]).await.unwrap();
        one.stop().await;
        old
    };
    let zero = stage.open(0).await;
    stage.fleet.inner().owners.remove(&ShardId(1));
    let parent = zero.start(&id_on(0, "parent")).await;
    let task = stage.workflow_task(&zero, "w").await;
    zero.complete(&task, vec![child(&id_on(1, "child"))]).await.unwrap();
    let row = stage.store.outbox(ShardId(0), 0, 10).await.unwrap().pop().unwrap();
    let one = stage.open(1).await;
    let deliver = || Operation::Deliver { message: Box::new(harvest_wire::message::decode(&row.message).unwrap()), key_looked_up: false };
    let (first, second) = futures::join!(one.call(deliver()), one.call(deliver()));
    assert_eq!((first, second), (Ok(Answer::Gone), Ok(Answer::Gone)));
    let task = stage.workflow_task(&one, "w").await;
    assert_ne!(task.run.execution_id, old);
    assert_eq!(one.call(Operation::Locate(Target::Execution(old))).await.map(|_| ()), Ok::<(), Refusal>(()));
    one.complete(&task, vec![finish()]).await.unwrap();
    stage.workflow_task(&zero, "w").await;
    assert_eq!(child_ended(&stage.events(0, parent).await), 1);
    assert_outboxes_are_empty(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn messages_wait_for_an_owner_and_a_new_owner_of_the_source_delivers_them() {
    let stage = Stage::new(2).await;
    let zero = stage.open(0).await;
    let parent = zero.start(&id_on(0, "parent")).await;
    let task = stage.workflow_task(&zero, "w").await;
    zero.complete(&task, vec![child(&id_on(1, "child"))]).await.unwrap();
    zero.kill();
    let zero = stage.open(0).await;
    let one = stage.open(1).await;
    let task = stage.workflow_task(&one, "w").await;
    one.complete(&task, vec![finish()]).await.unwrap();
    stage.workflow_task(&zero, "w").await;
    assert_eq!(child_ended(&stage.events(0, parent).await), 1);
    assert_outboxes_are_empty(&stage).await;
}
