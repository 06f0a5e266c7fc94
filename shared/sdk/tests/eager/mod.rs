//! Activities that come with the answer to a decision, and decisions ahead.

use super::fleet::Fleet;
use super::{Running, config, in_time};
use harvest_sdk::prelude::*;
use harvest_sdk::{WorkflowHandle, WorkflowReplayer};
use harvest_workflow_core::event::{Event, EventKind};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::sync::{Barrier, Notify};

/// How many end at once where many do.
const CROWD: usize = 8;

/// What activities and tests share.
struct Desk {
    running: AtomicU32,
    most: AtomicU32,
    attempts: Mutex<BTreeSet<u32>>,
    began: Notify,
    go_on: Notify,
    together: Barrier,
    crowd: Barrier,
}

impl Default for Desk {
    fn default() -> Self {
        let (running, most, attempts) = (AtomicU32::new(0), AtomicU32::new(0), Mutex::default());
        Self { running, most, attempts, began: Notify::new(), go_on: Notify::new(), together: Barrier::new(2), crowd: Barrier::new(CROWD) }
    }
}

fn desk(ctx: &ActivityContext) -> Arc<Desk> {
    Arc::unwrap_or_clone(ctx.state::<Arc<Desk>>().unwrap())
}

#[activity]
async fn double(ctx: &ActivityContext, n: u64) -> Result<u64, String> {
    let desk = desk(ctx);
    desk.most.fetch_max(desk.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    desk.attempts.lock().unwrap().insert(ctx.attempt());
    tokio::task::yield_now().await;
    desk.running.fetch_sub(1, Ordering::SeqCst);
    Ok(2 * n)
}

/// Ends when another one does.
#[activity]
async fn meet(ctx: &ActivityContext, n: u64) -> Result<u64, String> {
    desk(ctx).together.wait().await;
    Ok(n)
}

/// Ends when many do.
#[activity]
async fn gather(ctx: &ActivityContext, n: usize) -> Result<usize, String> {
    desk(ctx).crowd.wait().await;
    Ok(n)
}

/// Ends when the test says so.
#[activity]
async fn held(ctx: &ActivityContext) -> Result<(), String> {
    let desk = desk(ctx);
    desk.began.notify_one();
    desk.go_on.notified().await;
    Ok(())
}

#[activity]
async fn inflate(_ctx: &ActivityContext, bytes: usize) -> Result<String, String> {
    Ok("x".repeat(bytes))
}

#[activity]
async fn measure(_ctx: &ActivityContext, text: String) -> Result<usize, String> {
    Ok(text.len())
}

#[activity(retry = RetryPolicy::none())]
async fn broken(_ctx: &ActivityContext) -> Result<(), String> {
    Err("always".to_owned())
}

/// Doubles so often, and tells what time it was after each.
#[workflow]
async fn chain(ctx: &WorkflowContext, times: u32) -> Result<Vec<SystemTime>, HarvestError> {
    let (mut value, mut seen) = (1, Vec::new());
    for _ in 0..times {
        value = ctx.execute_activity(&double, value).await?;
        seen.push(ctx.now());
        ctx.random_u64(); // a decision that is worked out twice records another value
    }
    assert_eq!(value, 1 << times);
    Ok(seen)
}

#[workflow]
async fn pair(ctx: &WorkflowContext, start: u64) -> Result<u64, HarvestError> {
    let (left, right) = (ctx.execute_activity(&meet, start), ctx.execute_activity(&meet, start + 1));
    let sum = left.await? + right.await?;
    ctx.execute_activity(&double, sum).await
}

#[workflow]
async fn crowd(ctx: &WorkflowContext) -> Result<u64, HarvestError> {
    let running: Vec<_> = (0..CROWD).map(|n| ctx.execute_activity(&gather, n)).collect();
    for (n, running) in running.into_iter().enumerate() {
        assert_eq!(running.await?, n);
    }
    ctx.execute_activity(&double, 4).await
}

#[workflow]
async fn held_then_double(ctx: &WorkflowContext) -> Result<u64, HarvestError> {
    ctx.execute_activity(&held, ()).await?;
    ctx.execute_activity(&double, 4).await
}

#[workflow]
async fn then_timer(ctx: &WorkflowContext) -> Result<u64, HarvestError> {
    let value = ctx.execute_activity(&double, 4).await?;
    ctx.timer("pause", Duration::from_millis(20)).await?;
    Ok(value)
}

#[workflow]
async fn laps(ctx: &WorkflowContext, (left, value): (u32, u64)) -> Result<u64, HarvestError> {
    let value = ctx.execute_activity(&double, value).await?;
    if left > 1 {
        ctx.continue_as_new((left - 1, value)).await?;
    }
    Ok(value)
}

#[workflow]
async fn large(ctx: &WorkflowContext, bytes: usize) -> Result<usize, HarvestError> {
    let text = ctx.execute_activity(&inflate, bytes).await?;
    let (left, right) = (ctx.execute_activity(&measure, text.clone()), ctx.execute_activity(&measure, text));
    Ok(left.await? + right.await?)
}

#[workflow]
async fn panics_later(ctx: &WorkflowContext) -> Result<u64, HarvestError> {
    ctx.execute_activity(&double, 4).await?;
    panic!("always")
}

#[workflow]
async fn fails(ctx: &WorkflowContext) -> Result<u64, HarvestError> {
    let failed = ctx.execute_activity(&broken, ()).await;
    assert!(failed.is_err());
    ctx.execute_activity(&double, 4).await
}

struct World {
    fleet: Fleet,
    desk: Arc<Desk>,
    worker: Running,
}

async fn world(change: impl FnOnce(WorkerConfig) -> WorkerConfig) -> World {
    let (fleet, desk) = (Fleet::start().await, Arc::new(Desk::default()));
    let builder = HarvestBuilder::new()
        .workflows(workflows![chain, pair, crowd, held_then_double, then_timer, laps, large, panics_later, fails])
        .activities(activities![double, meet, gather, held, inflate, measure, broken])
        .state(desk.clone())
        .worker(change(config(&fleet)));
    let worker = Running::start(builder.build().unwrap());
    World { fleet, desk, worker }
}

/// Every recorded decision must be one that the code makes again.
async fn replays<T>(handle: &WorkflowHandle<T>) {
    let replayer = WorkflowReplayer::new().workflows(workflows![chain, pair, crowd, held_then_double, then_timer, laps, large, panics_later, fails]);
    replayer.replay(handle.history().await.unwrap()).unwrap();
}

/// When results of activities were recorded.
fn completed_at(events: &[Event]) -> Vec<SystemTime> {
    let completed = events.iter().filter(|event| matches!(event.kind, EventKind::ActivityCompleted { .. }));
    completed.map(|event| SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(event.at.as_millis()).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_activities_in_sequence_needs_one_workflow_task_and_no_activity_task() {
    let World { fleet, worker, .. } = world(|config| config).await;
    let handle = fleet.client().start(&chain, StartOptions::new("a"), 3).await.unwrap();
    let seen = in_time(handle.result()).await.unwrap();
    assert_eq!(seen, completed_at(&fleet.events(handle.execution_id())), "the code has seen the times that were recorded");
    replays(&handle).await;
    {
        let engine = fleet.engine();
        let counts = &engine.counts;
        assert_eq!((counts.workflow_tasks, counts.streamed_activities, counts.eager_given), (1, 0, 3));
        assert_eq!((counts.ahead_sent, counts.ahead_taken, engine.history_reads), (3, 3, 1), "one read is the test's");
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_told_not_to_asks_for_nothing() {
    let World { fleet, worker, .. } = world(|config| config.with_eager_activities(false)).await;
    let handle = fleet.client().start(&chain, StartOptions::new("a"), 3).await.unwrap();
    in_time(handle.result()).await.unwrap();
    {
        let counts = &fleet.engine().counts;
        assert_eq!((counts.workflow_tasks, counts.streamed_activities, counts.eager_wanted, counts.ahead_sent), (4, 3, 0, 0));
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activities_that_are_not_given_come_by_the_stream() {
    let World { fleet, worker, .. } = world(|config| config.with_max_concurrent_activities(2)).await;
    fleet.faults(|faults| faults.never_eager = true);
    // The place that was reserved in vain is free again every time.
    let handle = fleet.client().start(&chain, StartOptions::new("a"), 5).await.unwrap();
    in_time(handle.result()).await.unwrap();
    replays(&handle).await;
    {
        let counts = &fleet.engine().counts;
        assert_eq!((counts.streamed_activities, counts.eager_given, counts.ahead_sent), (5, 0, 0), "without new events nothing is decided ahead");
        assert!(counts.eager_wanted > 0);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_ahead_that_comes_second_is_refused_and_the_run_replays() {
    let World { fleet, worker, .. } = world(|config| config).await;
    fleet.faults(|faults| faults.signals_before_ahead = 2);
    let handle = fleet.client().start(&chain, StartOptions::new("a"), 4).await.unwrap();
    assert_eq!(in_time(handle.result()).await.unwrap(), completed_at(&fleet.events(handle.execution_id())));
    replays(&handle).await;
    {
        let engine = fleet.engine();
        let signals = fleet_signals(&engine.events(handle.execution_id()));
        assert_eq!((signals, engine.counts.ahead_sent - engine.counts.ahead_taken), (2, 2));
        assert!(engine.history_reads > 2, "a run that has seen what did not happen is dropped");
    }
    worker.stop().await;
}

fn fleet_signals(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event.kind, EventKind::SignalReceived { .. })).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_activities_of_a_run_that_end_at_the_same_time_are_decided_about_in_turn() {
    let World { fleet, worker, .. } = world(|config| config).await;
    for n in 0..12 {
        let handle = fleet.client().start(&pair, StartOptions::new(format!("{n}")), n).await.unwrap();
        assert_eq!(in_time(handle.result()).await.unwrap(), 2 * (2 * n + 1));
        replays(&handle).await;
    }
    {
        let counts = &fleet.engine().counts;
        assert_eq!((counts.workflow_tasks, counts.ahead_sent, counts.ahead_taken), (12, 36, 36));
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_activities_of_a_run_that_end_at_the_same_time() {
    let World { fleet, worker, .. } = world(|config| config).await;
    for n in 0..6 {
        let handle = fleet.client().start(&crowd, StartOptions::new(format!("{n}")), ()).await.unwrap();
        assert_eq!(in_time(handle.result()).await.unwrap(), 8);
        replays(&handle).await;
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_are_given_again_and_nothing_runs_twice() {
    let World { fleet, desk, worker } = world(|config| config).await;
    fleet.faults(|faults| {
        faults.lose_decision_replies = 1;
        faults.lose_close_replies = 2;
    });
    let handle = fleet.client().start(&chain, StartOptions::new("a"), 4).await.unwrap();
    in_time(handle.result()).await.unwrap();
    replays(&handle).await;
    assert_eq!(*desk.attempts.lock().unwrap(), BTreeSet::from([1]));
    {
        let counts = &fleet.engine().counts;
        assert_eq!((counts.repeated, counts.eager_given, counts.ahead_taken), (3, 4, 4));
    }
    // Here nothing runs that the answer could be repeated for: the run is dropped, and the timer's task replays.
    fleet.faults(|faults| faults.lose_close_replies = 1);
    let handle = fleet.client().start(&then_timer, StartOptions::new("b"), ()).await.unwrap();
    assert_eq!(in_time(handle.result()).await.unwrap(), 8);
    replays(&handle).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_drains_asks_for_nothing_more() {
    let World { fleet, desk, worker } = world(|config| config).await;
    let handle = fleet.client().start(&held_then_double, StartOptions::new("a"), ()).await.unwrap();
    in_time(desk.began.notified()).await;
    assert_eq!(fleet.engine().counts.eager_given, 1);
    let Running { stop, ended } = worker;
    stop.send(()).unwrap();
    fleet.until("the drain", |engine| engine.sessions.iter().any(|session| session.draining).then_some(())).await;
    desk.go_on.notify_one();
    in_time(ended).await.unwrap().unwrap();
    let events = fleet.events(handle.execution_id());
    let scheduled = events.iter().filter(|event| matches!(event.kind, EventKind::ActivityScheduled(_))).count();
    assert_eq!(scheduled, 2, "the decision ahead was taken");
    let counts = &fleet.engine().counts;
    assert_eq!((counts.eager_wanted, counts.ahead_taken), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_never_more_activities_than_places() {
    for places in [1, 2, 5] {
        let World { fleet, desk, worker } = world(|config| config.with_max_concurrent_activities(places).with_workflow_cache_size(20)).await;
        let mut handles = Vec::new();
        for n in 0..12 {
            handles.push(fleet.client().start(&chain, StartOptions::new(format!("{n}")), 3).await.unwrap());
        }
        for handle in handles {
            in_time(handle.result()).await.unwrap();
            replays(&handle).await;
        }
        {
            let counts = &fleet.engine().counts;
            assert!(counts.most_running <= usize::try_from(places).unwrap(), "{} of {places}", counts.most_running);
            assert!(places > 1 || counts.eager_wanted == 0, "the only place is granted");
        }
        assert!(desk.most.load(Ordering::SeqCst) <= places);
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_ahead_can_end_its_run_or_continue_it() {
    let World { fleet, worker, .. } = world(|config| config).await;
    let handle = fleet.client().start(&laps, StartOptions::new("a"), (3, 1)).await.unwrap();
    assert_eq!(in_time(handle.result()).await.unwrap(), 8);
    {
        let counts = &fleet.engine().counts;
        assert_eq!((counts.ahead_taken, counts.workflow_tasks), (3, 3));
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_is_too_large_together_with_its_decision_goes_alone() {
    let World { fleet, worker, .. } = world(|config| config).await;
    for (name, bytes) in [("small", 1_000), ("a message holds the result or the decision", 1_500_000)] {
        let handle = fleet.client().start(&large, StartOptions::new(name), bytes).await.unwrap();
        assert_eq!(in_time(handle.result()).await.unwrap(), 2 * bytes);
        replays(&handle).await;
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_panics_about_a_result_does_not_hold_it_up() {
    let World { fleet, worker, .. } = world(|config| config).await;
    let handle = fleet.client().start(&panics_later, StartOptions::new("a"), ()).await.unwrap();
    let id = handle.execution_id().parse().unwrap();
    let failed_task = |run: &super::fleet::RunRecord| run.state.projection().due_at.filter(|_| run.state.projection().tasks.is_empty());
    fleet.until("the failed task", |engine| failed_task(&engine.runs[&id])).await;
    assert_eq!(completed_at(&fleet.events(handle.execution_id())).len(), 1);
    assert_eq!(fleet.engine().counts.ahead_sent, 0);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_activity_brings_a_workflow_task_as_always() {
    let World { fleet, worker, .. } = world(|config| config).await;
    let handle = fleet.client().start(&fails, StartOptions::new("a"), ()).await.unwrap();
    assert_eq!(in_time(handle.result()).await.unwrap(), 8);
    replays(&handle).await;
    {
        let counts = &fleet.engine().counts;
        assert_eq!((counts.ahead_taken, counts.workflow_tasks), (1, 2));
    }
    worker.stop().await;
}
