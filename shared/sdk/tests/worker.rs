//! Worker and client against a fleet in this process.
#![allow(clippy::unwrap_used, reason = "a failed expectation of a test")]

mod eager;
mod eager_start;
mod fleet;

use fleet::Fleet;
use harvest_sdk::prelude::*;
use harvest_sdk::{ClientError, ConflictPolicy, Worker, WorkerError, WorkflowOutcomeError, WorkflowReplayer};
use harvest_workflow_core::event::EventKind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// What activities and tests share.
#[derive(Default)]
struct Probe {
    calls: AtomicU32,
    began: Notify,
    go_on: Notify,
    keys: Mutex<Vec<String>>,
    dropped: Arc<Notify>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn probe(ctx: &ActivityContext) -> Arc<Probe> {
    Arc::unwrap_or_clone(ctx.state::<Arc<Probe>>().unwrap())
}

#[activity(start_to_close = "30s", retry = RetryPolicy::fixed(3, Duration::from_millis(5)))]
async fn flaky(ctx: &ActivityContext, fail: u32) -> Result<u32, String> {
    let probe = probe(ctx);
    probe.keys.lock().unwrap().push(ctx.idempotency_key());
    let before: Option<u32> = ctx.heartbeat_details().map_err(String::from)?;
    assert_eq!(before, (ctx.attempt() > 1).then(|| ctx.attempt() - 1));
    ctx.heartbeat(0).await?;
    ctx.heartbeat(ctx.attempt()).await?; // held back by the throttle: reaches the server before the failure does
    if ctx.attempt() <= fail { Err(format!("attempt {}", ctx.attempt())) } else { Ok(probe.calls.fetch_add(1, Ordering::SeqCst)) }
}

#[activity(retry = RetryPolicy::none())]
async fn panicking(_ctx: &ActivityContext) -> Result<(), String> {
    panic!("activity panic")
}

/// Runs until it is told to go on, or to stop.
#[activity(retry = RetryPolicy::fixed(2, Duration::from_millis(5)))]
async fn long(ctx: &ActivityContext) -> Result<String, ActivityFailure> {
    let probe = probe(ctx);
    let _guard = NotifyOnDrop(probe.dropped.clone());
    probe.calls.fetch_add(1, Ordering::SeqCst);
    probe.began.notify_one();
    tokio::select! {
        () = ctx.cancelled() => Err(ActivityCancelled.into()),
        () = probe.go_on.notified() => Ok(format!("attempt {}", ctx.attempt())),
    }
}

#[workflow]
async fn steps(ctx: &WorkflowContext, fail: u32) -> Result<u32, HarvestError> {
    let result = ctx.execute_activity(&flaky, fail).await;
    ctx.timer("pause", Duration::from_millis(20)).await?;
    result
}

#[workflow]
async fn breaks(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.execute_activity(&panicking, ()).await
}

#[workflow]
async fn waits(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    let running = ctx.execute_activity(&long, ());
    let stop = running.canceller();
    let mut running = running;
    let mut cancelled = ctx.cancelled();
    harvest_sdk::select! {
        result = running => return result,
        _reason = cancelled => stop.cancel(),
    }
    running.await?;
    ctx.check_cancelled()?;
    Ok("not cancelled".to_owned())
}

#[workflow]
async fn stoppable(ctx: &WorkflowContext) -> Result<(), String> {
    let reason = ctx.cancelled().await;
    Err(HarvestError::Cancelled { reason }.into())
}

#[workflow]
async fn tally(ctx: &WorkflowContext, start: u32) -> Result<u32, HarvestError> {
    let total = Arc::new(Mutex::new(start));
    let seen = total.clone();
    ctx.register_query("total", move || *seen.lock().unwrap());
    for _ in 0..5 {
        let n: u32 = ctx.receive_signal("add").await?;
        *total.lock().unwrap() += n;
        if n == 0 {
            return Ok(*total.lock().unwrap());
        }
    }
    let total = *total.lock().unwrap();
    ctx.continue_as_new(total).await?;
    Ok(0)
}

#[workflow]
async fn family(ctx: &WorkflowContext, n: u32) -> Result<u32, HarvestError> {
    let children: Vec<_> = (0..n).map(|_| ctx.spawn_child_workflow(&steps, 0)).collect();
    let mut sum = 0;
    for child in children {
        child.await?;
        sum += 1;
    }
    Ok(sum)
}

#[workflow]
async fn panics_once(_ctx: &WorkflowContext) -> Result<(), String> {
    panic!("workflow panic")
}

fn builder(fleet: &Fleet, probe: &Arc<Probe>) -> HarvestBuilder {
    HarvestBuilder::new()
        .workflows(workflows![steps, breaks, waits, stoppable, tally, family, panics_once])
        .activities(activities![flaky, panicking, long])
        .state(probe.clone())
        .worker(config(fleet))
}

fn config(fleet: &Fleet) -> WorkerConfig {
    WorkerConfig::default().with_addresses([fleet.address()]).with_cancellation_grace_period(Duration::from_millis(50))
}

struct Running {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), WorkerError>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(worker.run(async move {
            let _dropped = stopped.await;
        }));
        Self { stop, ended }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), self.ended).await.expect("the worker ends").unwrap().unwrap();
    }
}

async fn set_up() -> (Fleet, Arc<Probe>, Running) {
    let fleet = Fleet::start().await;
    let probe = Arc::new(Probe::default());
    let running = Running::start(builder(&fleet, &probe).build().unwrap());
    (fleet, probe, running)
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_through_an_activity_with_retries_and_a_timer() {
    let (fleet, probe, worker) = set_up().await;
    let handle = fleet.client().start(&steps, StartOptions::new("a"), 2).await.unwrap();
    assert_eq!(in_time(handle.result()).await.unwrap(), 0);
    let keys = probe.keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| key == &keys[0]));
    assert_eq!(fleet.engine().history_reads, 0, "the run stayed in memory");
    assert!(handle.started_fresh());
    assert_eq!(handle.describe().await.unwrap().state, "COMPLETED");
    WorkflowReplayer::new().workflows(workflows![steps]).replay(handle.history().await.unwrap()).unwrap();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_activity_and_a_panicking_one_fail_the_run_with_their_types() {
    let (fleet, _probe, worker) = set_up().await;
    let client = fleet.client();
    let exhausted = client.start(&steps, StartOptions::new("a"), 9).await.unwrap();
    let Err(WorkflowOutcomeError::Failed { error_type, message, .. }) = in_time(exhausted.result()).await else { panic!("no failure") };
    assert_eq!(error_type, "Error");
    assert!(message.contains("attempt 3"), "{message}");
    let panicked = client.start(&breaks, StartOptions::new("b"), ()).await.unwrap();
    let Err(WorkflowOutcomeError::Failed { error_type, message, .. }) = in_time(panicked.result()).await else { panic!("no failure") };
    assert_eq!(error_type, "HandlerPanic");
    assert!(message.contains("activity panic"), "{message}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_queries_and_continue_as_new() {
    let (fleet, _probe, worker) = set_up().await;
    let client = fleet.client();
    let handle = client.start(&tally, StartOptions::new("a"), 1).await.unwrap();
    for n in 1..=7 {
        handle.signal("add", n).await.unwrap();
    }
    handle.signal_once("add", 100, "same").await.unwrap();
    handle.signal_once("add", 100, "same").await.unwrap();
    let by_key = client.handle(&tally, "a");
    in_time(async {
        loop {
            // The query follows no chain: ask the newest run.
            let newest = fleet.engine().runs.values().last().unwrap().state.started().unwrap().execution_id.to_string();
            let newest = client.handle_of_execution::<u32>(&newest);
            if newest.query::<u32>("total", ()).await.is_ok_and(|total| total == 129) {
                return;
            }
        }
    })
    .await;
    assert!(matches!(handle.query::<u32>("nothing", ()).await, Err(ClientError::NotFound(message)) if message.contains("total")));
    handle.signal("add", 0).await.unwrap();
    assert_eq!(in_time(by_key.result()).await.unwrap(), 129);
    assert!(matches!(handle.signal("add", 1).await, Err(ClientError::Refused { reason, .. }) if reason == "WORKFLOW_CLOSED"));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_finds_the_open_run_or_fails_as_the_caller_wants() {
    let (fleet, _probe, worker) = set_up().await;
    let client = fleet.client();
    let first = client.start(&tally, StartOptions::new("a"), 1).await.unwrap();
    let second = client.start(&tally, StartOptions::new("a"), 1).await.unwrap();
    assert_eq!((first.execution_id(), second.started_fresh()), (second.execution_id(), false));
    let third = client.start(&tally, StartOptions::new("a").conflict_policy(ConflictPolicy::Fail), 1).await;
    assert!(matches!(third, Err(ClientError::AlreadyExists(_))));
    first.terminate("enough").await.unwrap();
    assert!(matches!(in_time(first.result()).await, Err(WorkflowOutcomeError::Terminated(reason)) if reason == "enough"));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_reaches_workflow_code_and_through_it_a_running_activity() {
    let (fleet, probe, worker) = set_up().await;
    let client = fleet.client();
    let simple = client.start(&stoppable, StartOptions::new("a"), ()).await.unwrap();
    simple.cancel("why not").await.unwrap();
    assert!(matches!(in_time(simple.result()).await, Err(WorkflowOutcomeError::Cancelled(reason)) if reason == "why not"));
    let waiting = client.start(&waits, StartOptions::new("b"), ()).await.unwrap();
    in_time(probe.began.notified()).await;
    waiting.cancel("stop").await.unwrap();
    let ended = in_time(waiting.result()).await;
    assert!(matches!(&ended, Err(WorkflowOutcomeError::Cancelled(reason)) if reason == "stop"), "{ended:?}");
    let events = fleet.events(waiting.execution_id());
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::ActivityCancelled { .. })));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_run_on_the_same_worker() {
    let (fleet, _probe, worker) = set_up().await;
    let handle = fleet.client().start(&family, StartOptions::new("a"), 3).await.unwrap();
    assert_eq!(in_time(handle.result()).await.unwrap(), 3);
    assert!(fleet.engine().open_types().is_empty());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_go_on_without_a_cache_and_with_small_pages_and_lost_answers() {
    let fleet = Fleet::start().await;
    let probe = Arc::new(Probe::default());
    fleet.faults(|faults| {
        faults.history_page = Some(2);
        faults.lose_decision_replies = 3;
    });
    let worker = Running::start(builder(&fleet, &probe).worker(config(&fleet).with_workflow_cache_size(0)).build().unwrap());
    let handle = fleet.client().start(&family, StartOptions::new("a"), 3).await.unwrap();
    assert_eq!(in_time(handle.result()).await.unwrap(), 3);
    assert!(fleet.engine().history_reads > 3);
    assert!(handle.history().await.unwrap().len() > 10);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_given_the_full_history_goes_on_with_its_cached_run() {
    let (fleet, _probe, worker) = set_up().await;
    fleet.faults(|faults| faults.never_sticky = true);
    let handle = fleet.client().start(&steps, StartOptions::new("a"), 0).await.unwrap();
    in_time(handle.result()).await.unwrap();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_breaks_is_opened_again_under_its_id_and_attempts_go_on() {
    let (fleet, probe, worker) = set_up().await;
    let handle = fleet.client().start(&waits, StartOptions::new("a"), ()).await.unwrap();
    in_time(probe.began.notified()).await;
    for session in fleet.engine().sessions.drain(..) {
        session.sender.try_send(Err(tonic::Status::unavailable("the frontend goes away"))).unwrap();
    }
    fleet.until("a second hello", |engine| (engine.seen_hello.len() == 2 && !engine.sessions.is_empty()).then_some(())).await;
    assert_eq!(fleet.engine().seen_hello[1].resume_worker_id, "worker-0");
    let announced = fleet.engine().announced;
    fleet.until("an announcement", |engine| (engine.announced > announced).then_some(())).await;
    probe.go_on.notify_one();
    assert_eq!(in_time(handle.result()).await.unwrap(), "attempt 1");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_sent_twice_runs_once() {
    let (fleet, probe, worker) = set_up().await;
    fleet.faults(|faults| (faults.repeat_activities, faults.never_eager) = (true, true));
    let client = fleet.client();
    let first = client.start(&waits, StartOptions::new("a"), ()).await.unwrap();
    in_time(probe.began.notified()).await;
    // The stream is in order: what comes for the second run comes after both copies of the first one's task.
    let second = client.start(&waits, StartOptions::new("b"), ()).await.unwrap();
    fleet.until("the second attempt", |_| (probe.calls.load(Ordering::SeqCst) >= 2).then_some(())).await;
    for _ in 0..2 {
        probe.go_on.notify_one();
        in_time(probe.dropped.notified()).await;
    }
    for handle in [first, second] {
        assert_eq!(in_time(handle.result()).await.unwrap(), "attempt 1");
    }
    assert_eq!(probe.calls.load(Ordering::SeqCst), 2);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_nobody_confirms_is_aborted() {
    let (fleet, probe) = (Fleet::start().await, Arc::new(Probe::default()));
    fleet.faults(|faults| (faults.mute_announcements, faults.announce_timeout_ms) = (true, Some(400)));
    let worker = Running::start(builder(&fleet, &probe).build().unwrap());
    fleet.client().start(&waits, StartOptions::new("a"), ()).await.unwrap();
    in_time(probe.began.notified()).await;
    in_time(probe.dropped.notified()).await;
    // A session that answers nothing is as good as broken: another frontend may be better.
    fleet.until("a second hello", |engine| (engine.seen_hello.len() > 1).then_some(())).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_told_lost_is_aborted() {
    let (fleet, probe, worker) = set_up().await;
    fleet.client().start(&waits, StartOptions::new("a"), ()).await.unwrap();
    in_time(probe.began.notified()).await;
    fleet.faults(|faults| faults.tell_lost = true);
    in_time(probe.dropped.notified()).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_running_activities() {
    let (fleet, probe, worker) = set_up().await;
    let handle = fleet.client().start(&waits, StartOptions::new("a"), ()).await.unwrap();
    in_time(probe.began.notified()).await;
    let Running { stop, ended } = worker;
    stop.send(()).unwrap();
    fleet.until("the drain", |engine| engine.sessions.iter().any(|session| session.draining).then_some(())).await;
    probe.go_on.notify_one();
    in_time(ended).await.unwrap().unwrap();
    let events = fleet.events(handle.execution_id());
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::ActivityCompleted { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_that_waits_no_longer_hands_activities_to_the_next_worker() {
    let fleet = Fleet::start().await;
    let probe = Arc::new(Probe::default());
    let worker = Running::start(builder(&fleet, &probe).worker(config(&fleet).with_shutdown_timeout(Duration::from_millis(50))).build().unwrap());
    let handle = fleet.client().start(&waits, StartOptions::new("a"), ()).await.unwrap();
    in_time(probe.began.notified()).await;
    worker.stop().await;
    let worker = Running::start(builder(&fleet, &probe).build().unwrap());
    in_time(probe.began.notified()).await;
    probe.go_on.notify_one();
    assert_eq!(in_time(handle.result()).await.unwrap(), "attempt 2");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_panic_is_reported_and_the_worker_serves_on() {
    let (fleet, _probe, worker) = set_up().await;
    let client = fleet.client();
    let panicking = client.start(&panics_once, StartOptions::new("a"), ()).await.unwrap();
    let id = panicking.execution_id().parse().unwrap();
    fleet.until("the failed task", |engine| engine.runs[&id].state.projection().due_at.filter(|_| engine.runs[&id].state.projection().tasks.is_empty())).await;
    let handle = client.start(&steps, StartOptions::new("b"), 0).await.unwrap();
    in_time(handle.result()).await.unwrap();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_at_once_with_a_small_cache_and_few_places() {
    let fleet = Fleet::start().await;
    let probe = Arc::new(Probe::default());
    let config = config(&fleet).with_workflow_cache_size(3).with_max_concurrent_workflows(4).with_max_concurrent_activities(2);
    let worker = Running::start(builder(&fleet, &probe).worker(config).build().unwrap());
    let client = fleet.client();
    let mut handles = Vec::new();
    for n in 0..40 {
        handles.push(client.start(&steps, StartOptions::new(format!("{n}")), 0).await.unwrap());
    }
    for handle in handles {
        in_time(handle.result()).await.unwrap();
    }
    assert_eq!(probe.calls.load(Ordering::SeqCst), 40);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_server_gives_up_in_time() {
    let client = Client::connect(["http://127.0.0.1:1"]).unwrap().with_patience(Duration::from_millis(200));
    let failed = in_time(client.start(&steps, StartOptions::new("a"), 0)).await;
    assert!(matches!(failed, Err(ClientError::Unavailable(_))));
}
