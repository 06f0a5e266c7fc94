//! Starts, and which run answers for a business key.

use super::stage::{Stage, finish, key, requested, start, started};
use crate::shard::operation::{Answer, Operation, Refusal, Target};
use harvest_workflow_core::state::Status;

#[tokio::test(start_paused = true)]
async fn a_start_is_repeated_by_its_request_and_finds_an_existing_run_otherwise() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = started(owner.call(requested("a", "r1", false)).await);
    let answer = |fresh| Ok(Answer::Started { execution_id: run, status: Status::Running, fresh, task: None });
    assert_eq!(owner.call(requested("a", "r1", false)).await, answer(true));
    assert_eq!(owner.call(requested("a", "r1", true)).await, answer(true), "its own start is no conflict");
    assert_eq!(owner.call(requested("a", "r2", false)).await, answer(false));
    assert_eq!(owner.call(requested("a", "r2", true)).await, Err(Refusal::AlreadyExists { execution_id: run, status: Status::Running }));
    let next = stage.open(0).await;
    assert_eq!(next.call(requested("a", "r1", false)).await, answer(true), "also by a new owner");
}

#[tokio::test(start_paused = true)]
async fn two_starts_of_one_key_while_it_is_looked_up_are_one_run() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    owner.faults.hold_finds();
    owner.faults.hold_commits(true);
    let first = owner.handle.submit(requested("a", "r1", true)).unwrap();
    stage.rest().await;
    let second = owner.handle.submit(requested("a", "r2", false)).unwrap();
    let third = owner.handle.submit(requested("a", "r3", true)).unwrap();
    stage.rest().await;
    owner.faults.hold_commits(false);
    let run = started(stage.soon(first).await.unwrap());
    assert_eq!(stage.soon(second).await.unwrap(), Ok(Answer::Started { execution_id: run, status: Status::Running, fresh: false, task: None }));
    assert_eq!(stage.soon(third).await.unwrap(), Err(Refusal::AlreadyExists { execution_id: run, status: Status::Running }));
    assert_eq!(owner.faults.commits(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_of_a_closed_run_returns_it() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![finish()]).await.unwrap();
    let existing = Ok(Answer::Started { execution_id: run, status: Status::Completed, fresh: false, task: None });
    assert_eq!(owner.call(start("a")).await, existing);
    let next = stage.open(0).await;
    assert_eq!(next.call(start("a")).await, existing);
    assert!(matches!(next.call(Operation::Locate(Target::Key(key("a")))).await, Ok(Answer::Located { execution_id, .. }) if execution_id == run));
}

#[tokio::test(start_paused = true)]
async fn an_id_of_another_namespace_is_not_found() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let other = harvest_ids::Namespace::new("other").unwrap();
    assert_eq!(owner.call(Operation::Locate(Target::ExecutionOf(other, run))).await, Err(Refusal::NotFound));
    let mine = harvest_ids::Namespace::default();
    assert!(owner.call(Operation::Locate(Target::ExecutionOf(mine, run))).await.is_ok());
}
