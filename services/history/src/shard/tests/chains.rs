//! Continue-as-new.

use super::stage::{Stage, finish, key, requested, signals, start, started};
use crate::shard::operation::{Answer, Operation, Target};
use harvest_ids::ExecutionId;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::oracle::check_chain;
use harvest_workflow_core::payload::Payload;
use harvest_workflow_core::state::Outcome;

fn next() -> Command {
    Command::ContinueAsNew { input: Payload::json("2"), workflow_type: None, task_queue: None }
}

async fn current(owner: &super::stage::Owner) -> ExecutionId {
    match owner.call(Operation::Locate(Target::Key(key("a")))).await {
        Ok(Answer::Located { execution_id, .. }) => execution_id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_is_born_in_the_commit_that_closes_its_predecessor_and_takes_its_key() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let first = owner.start("a").await;
    let task = stage.workflow_task(&owner, "w").await;
    owner.signal(first, "unread").await.unwrap();
    let commits = owner.faults.commits();
    owner.complete(&task, vec![next()]).await.unwrap();
    assert_eq!(owner.faults.commits(), commits + 1);
    let batch = owner.faults.batches().pop().unwrap();
    assert_eq!((batch.runs_changed.len(), batch.runs_new.len()), (1, 1));
    let second = current(&owner).await;
    assert_ne!(second, first);
    assert_eq!(started(owner.call(start("a")).await), second, "the key is the successor's");
    let (one, two) = (stage.records(0, first).await, stage.records(0, second).await);
    check_chain(&[&one, &two]).unwrap();
    assert_eq!(signals(&stage.events(0, second).await), ["unread"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_repeated_after_its_run_was_continued_is_told_of_the_run_that_it_made() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let first = started(owner.call(requested("a", "r", true)).await);
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![next()]).await.unwrap();
    assert_ne!(current(&owner).await, first);
    let again = owner.call(requested("a", "r", true)).await;
    assert!(matches!(again, Ok(Answer::Started { execution_id, fresh: true, .. }) if execution_id == first), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn signals_by_an_old_id_follow_a_long_chain_to_the_live_run() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let first = owner.start("a").await;
    for _ in 0..300 {
        let task = stage.workflow_task(&owner, "w").await;
        owner.complete(&task, vec![next()]).await.unwrap();
    }
    let live = current(&owner).await;
    assert!(matches!(owner.signal(first, "s").await, Ok(Answer::Decided { execution_id, fresh: true, .. }) if execution_id == live));
    let new = stage.open(0).await;
    assert!(matches!(new.signal(first, "s").await, Ok(Answer::Decided { execution_id, fresh: false, .. }) if execution_id == live), "loaded one by one");
    assert_eq!(signals(&stage.events(0, live).await), ["s"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_run_is_told_of_its_successor_and_then_of_the_end() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let first = owner.start("a").await;
    let waiting = owner.handle.submit(Operation::AwaitClose(Target::Execution(first))).unwrap();
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![next()]).await.unwrap();
    let Answer::Closed(closed) = stage.soon(waiting).await.unwrap().unwrap() else { panic!("not closed") };
    let Outcome::ContinuedAsNew { new_execution_id } = closed.outcome else { panic!("{closed:?}") };
    let waiting = owner.handle.submit(Operation::AwaitClose(Target::Execution(new_execution_id))).unwrap();
    let task = stage.workflow_task(&owner, "w").await;
    owner.complete(&task, vec![finish()]).await.unwrap();
    let Answer::Closed(closed) = stage.soon(waiting).await.unwrap().unwrap() else { panic!("not closed") };
    assert_eq!(closed.outcome.output(), Some(&Payload::json("\"done\"")));
}
