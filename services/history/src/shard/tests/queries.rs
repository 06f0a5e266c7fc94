//! Queries that workers answer.

use super::stage::{Owner, Stage, worker_id};
use crate::shard::neighbours::OfferKind;
use crate::shard::operation::{Answer, Operation, Refusal, TakenQuery, Target};
use harvest_ids::{DurationMs, ExecutionId, QueryName};
use harvest_runtime::Clock;
use harvest_workflow_core::decision::Reject;
use harvest_workflow_core::payload::Payload;
use std::time::Duration;
use tokio::sync::oneshot;

fn ask(owner: &Owner, run: ExecutionId) -> oneshot::Receiver<Result<Answer, Refusal>> {
    let name = QueryName::new("total").unwrap();
    let query = Operation::Query { target: Target::Execution(run), name, args: Payload::null(), timeout: DurationMs::from_millis_const(5_000) };
    owner.handle.submit(query).unwrap()
}

async fn take(stage: &Stage, owner: &Owner, worker: &str, sequence: Option<u64>) -> (u64, Result<Answer, Refusal>) {
    let (sequence, run) = match sequence {
        Some(sequence) => (sequence, ExecutionId::new(harvest_ids::Slot::new(1).unwrap(), stage.clock.now(), 1)),
        None => {
            let offer = stage.offer(owner, OfferKind::Query).await;
            (offer.query.unwrap(), offer.execution_id)
        }
    };
    (sequence, owner.call(Operation::TakeQuery { sequence, execution_id: run, worker_id: worker_id(worker) }).await)
}

fn answer(query: &TakenQuery, worker: &str) -> Operation {
    Operation::AnswerQuery { token: query.token.clone(), worker_id: worker_id(worker), outcome: Ok(Payload::json("7")) }
}

/// A run whose code has run once.
async fn decided(stage: &Stage, owner: &Owner) -> ExecutionId {
    let run = owner.start("a").await;
    let task = stage.workflow_task(owner, "w").await;
    assert!(owner.complete(&task, Vec::new()).await.is_ok());
    run
}

#[tokio::test(start_paused = true)]
async fn a_query_before_the_first_decision_waits_for_it() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = owner.start("a").await;
    let asked = ask(&owner, run);
    let task = stage.workflow_task(&owner, "w").await;
    assert!(owner.complete(&task, Vec::new()).await.is_ok());
    let (_, taken) = take(&stage, &owner, "w", None).await;
    let Ok(Answer::QueryTask(query)) = taken else { panic!("{taken:?}") };
    assert_eq!(query.last_event, task.last_event.next(), "with the decision that it waited for");
    assert_eq!(owner.call(answer(&query, "w")).await, Ok(Answer::Gone));
    assert_eq!(stage.soon(asked).await.unwrap(), Ok(Answer::QueryAnswered(Ok(Payload::json("7")))));
}

#[tokio::test(start_paused = true)]
async fn a_query_is_taken_once_and_answered_only_by_its_taker() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = decided(&stage, &owner).await;
    let asked = ask(&owner, run);
    let (sequence, taken) = take(&stage, &owner, "w", None).await;
    let Ok(Answer::QueryTask(query)) = taken else { panic!("{taken:?}") };
    let again = Operation::TakeQuery { sequence, execution_id: run, worker_id: worker_id("x") };
    assert_eq!(owner.call(again).await, Ok(Answer::Gone));
    assert!(matches!(owner.call(answer(&query, "x")).await, Err(Refusal::Reject(Reject::StaleTask { .. }))));
    assert_eq!(owner.call(answer(&query, "w")).await, Ok(Answer::Gone));
    assert_eq!(stage.soon(asked).await.unwrap(), Ok(Answer::QueryAnswered(Ok(Payload::json("7")))));
    assert!(matches!(owner.call(answer(&query, "w")).await, Err(Refusal::Reject(Reject::StaleTask { .. }))), "answered twice");
    assert_eq!(stage.events(0, run).await.len(), 2, "it leaves no trace");
}

#[tokio::test(start_paused = true)]
async fn a_query_that_nobody_answers_times_out() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    let run = decided(&stage, &owner).await;
    let mut asked = ask(&owner, run);
    stage.clock.sleep(Duration::from_secs(4)).await;
    assert!(asked.try_recv().is_err());
    assert_eq!(stage.soon(asked).await.unwrap(), Err(Refusal::QueryTimeout));
    let (_, taken) = take(&stage, &owner, "w", None).await;
    assert_eq!(taken, Ok(Answer::Gone));
    let (_, taken) = take(&stage, &owner, "w", Some(99)).await;
    assert_eq!(taken, Ok(Answer::Gone));
}

#[tokio::test(start_paused = true)]
async fn queries_end_with_their_owner() {
    let stage = Stage::new(1).await;
    let mut owner = stage.open(0).await;
    let run = owner.start("a").await;
    let asked = ask(&owner, run);
    stage.rest().await;
    owner.stop().await;
    assert_eq!(stage.soon(asked).await.unwrap(), Err(Refusal::NotOwner));
}
