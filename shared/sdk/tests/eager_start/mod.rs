//! Starts in the worker's process that bring the first workflow task.

use super::fleet::Fleet;
use super::{Running, config, in_time};
use harvest_sdk::prelude::*;
use harvest_sdk::{ConflictPolicy, Worker};
use std::sync::Arc;
use tokio::sync::Notify;

#[workflow]
async fn doubled(_ctx: &WorkflowContext, n: u64) -> Result<u64, HarvestError> {
    Ok(2 * n)
}

#[workflow]
async fn greeted(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("name").await
}

fn worker(fleet: &Fleet, change: impl FnOnce(WorkerConfig) -> WorkerConfig) -> Worker {
    HarvestBuilder::new().workflows(workflows![doubled, greeted]).worker(change(config(fleet))).build().unwrap()
}

/// A running worker with a client beside it.
async fn beside(fleet: &Fleet, change: impl FnOnce(WorkerConfig) -> WorkerConfig) -> (Client, Running) {
    let worker = worker(fleet, change);
    let (client, welcomed) = (worker.client().unwrap(), worker.welcomed());
    let running = Running::start(worker);
    in_time(welcomed).await;
    (client, running)
}

/// How many starts asked for a task, how many brought one, and how many workflow tasks came by the stream.
fn counts(fleet: &Fleet) -> (u32, u32, u32) {
    let counts = &fleet.engine().counts;
    (counts.eager_starts_asked, counts.eager_starts_given, counts.workflow_tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_in_the_workers_process_brings_the_first_task_and_nothing_comes_by_the_stream() {
    let fleet = Fleet::start().await;
    // Eight places for workflow tasks, four of them kept.
    let (client, running) = beside(&fleet, |config| config.with_max_concurrent_workflows(8)).await;
    for n in 0..30 {
        let handle = client.start(&doubled, StartOptions::new(format!("run-{n}")), n).await.unwrap();
        assert_eq!(in_time(handle.result()).await.unwrap(), 2 * n);
    }
    assert_eq!(counts(&fleet), (30, 30, 0), "each place is free again");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_that_the_worker_cannot_run_and_those_of_others_ask_for_nothing() {
    let fleet = Fleet::start().await;
    // Of a worker that does not run yet, and of a client that knows no worker.
    let idle = worker(&fleet, |config| config);
    let plain = idle.client().unwrap().start(&doubled, StartOptions::new("early"), 1).await.unwrap();
    fleet.client().start(&doubled, StartOptions::new("plain"), 1).await.unwrap();
    let (client, running) = beside(&fleet, |config| config.with_queues(["default", "mine"])).await;
    // A queue, a type and a tenant that the worker does not have.
    client.start(&doubled, StartOptions::new("elsewhere").task_queue("other"), 1).await.unwrap();
    client.start_raw::<u64>("unknown", StartOptions::new("unknown"), 1).await.unwrap();
    client.clone().with_namespace("other").start(&doubled, StartOptions::new("tenant"), 1).await.unwrap();
    assert_eq!(counts(&fleet).0, 0);
    let mine = client.start(&doubled, StartOptions::new("mine").task_queue("mine"), 1).await.unwrap();
    assert_eq!(counts(&fleet).1, 1);
    assert_eq!(in_time(plain.result()).await.unwrap(), 2);
    assert_eq!(in_time(mine.result()).await.unwrap(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_told_not_to_or_has_one_place_gets_its_runs_by_the_stream() {
    for change in [|config: WorkerConfig| config.with_eager_starts(false), |config: WorkerConfig| config.with_max_concurrent_workflows(1)] {
        let fleet = Fleet::start().await;
        let (client, running) = beside(&fleet, change).await;
        let handle = client.start(&doubled, StartOptions::new("a"), 4).await.unwrap();
        assert_eq!(in_time(handle.result()).await.unwrap(), 8);
        assert_eq!(counts(&fleet), (0, 0, 1));
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_finds_a_run_or_is_refused_gives_its_place_back() {
    let fleet = Fleet::start().await;
    // Two places for workflow tasks, one of them kept.
    let (client, running) = beside(&fleet, |config| config.with_max_concurrent_workflows(2)).await;
    let first = client.start(&greeted, StartOptions::new("a"), ()).await.unwrap();
    fleet.until("the first decision", |engine| (engine.counts.eager_starts_given == 1).then_some(())).await;
    for _ in 0..5 {
        assert!(!client.start(&greeted, StartOptions::new("a"), ()).await.unwrap().started_fresh());
        assert!(client.start(&greeted, StartOptions::new("a").conflict_policy(ConflictPolicy::Fail), ()).await.is_err());
    }
    first.signal("name", "you").await.unwrap();
    assert_eq!(in_time(first.result()).await.unwrap(), "you");
    let next = client.start(&doubled, StartOptions::new("b"), 1).await.unwrap();
    assert_eq!(in_time(next.result()).await.unwrap(), 2);
    assert_eq!(counts(&fleet).1, 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_whose_answer_was_lost_brings_the_same_task_by_the_next() {
    let fleet = Fleet::start().await;
    let (client, running) = beside(&fleet, |config| config).await;
    fleet.faults(|faults| faults.lose_start_replies = 2);
    let handle = client.start(&doubled, StartOptions::new("a"), 4).await.unwrap();
    assert!(handle.started_fresh());
    assert_eq!(in_time(handle.result()).await.unwrap(), 8);
    assert_eq!((counts(&fleet), fleet.engine().counts.repeated), ((3, 1, 0), 2));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_run_although_the_caller_of_the_start_has_given_up() {
    let fleet = Fleet::start().await;
    let (client, running) = beside(&fleet, |config| config).await;
    let gate = Arc::new(Notify::new());
    fleet.faults(|faults| faults.hold_start_replies = Some(gate.clone()));
    let caller = client.clone();
    let starting = tokio::spawn(async move { caller.start(&doubled, StartOptions::new("a"), 4).await.map(drop) });
    fleet.until("the start", |engine| (engine.counts.eager_starts_given == 1).then_some(())).await;
    starting.abort();
    assert!(starting.await.unwrap_err().is_cancelled());
    fleet.faults(|faults| faults.hold_start_replies = None);
    gate.notify_one();
    let handle = client.handle(&doubled, "a");
    assert_eq!(in_time(handle.result()).await.unwrap(), 8);
    assert_eq!(counts(&fleet), (1, 1, 0));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_drains_runs_the_tasks_of_starts_that_are_on_their_way() {
    let fleet = Fleet::start().await;
    let (client, running) = beside(&fleet, |config| config).await;
    let gate = Arc::new(Notify::new());
    fleet.faults(|faults| faults.hold_start_replies = Some(gate.clone()));
    let starting = tokio::spawn(async move { client.start(&doubled, StartOptions::new("a"), 4).await.map(drop) });
    fleet.until("the start", |engine| (engine.counts.eager_starts_given == 1).then_some(())).await;
    let stopping = tokio::spawn(running.stop());
    fleet.until("the drain", |engine| engine.sessions[0].draining.then_some(())).await;
    gate.notify_one();
    starting.await.unwrap().unwrap();
    in_time(stopping).await.unwrap();
    assert!(fleet.engine().runs.values().all(|run| !run.state.is_open()), "it was decided before the worker ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_has_drained_asks_for_nothing() {
    let fleet = Fleet::start().await;
    let (client, running) = beside(&fleet, |config| config).await;
    running.stop().await;
    client.start(&doubled, StartOptions::new("late"), 1).await.unwrap();
    assert_eq!(counts(&fleet), (0, 0, 0));
}
