//! Workers, frontends and matching processes that are told to end while activities run, and connections that end without being told.

use anyhow::Context as _;
use harvest_integration_tests::eventually;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::fleet::{Way, with_fleet};
use harvest_integration_tests::process::Process;
use harvest_integration_tests::samples::{self, APPROVE, Purchase, crowd, lonely, purchase, receipt, steadily};
use harvest_integration_tests::store::Stores;
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_runtime::{Clock, SystemClock};
use harvest_sdk::StartOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Within this work that was handed back starts elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(6);
/// Within this work of a worker that is gone without a word starts elsewhere: 10 s of silence, and a loaded machine.
const NOTICED: Duration = Duration::from_secs(16);
/// Activities of the crowd.
const CROWD: u32 = 100;

fn worker(fleet: &Fleet, name: &str, namespace: &str, grace_ms: &str, activities: &str) -> anyhow::Result<Process> {
    fleet.start_worker(name, namespace, "default", &[("TEST_WORKER_GRACE_MS", grace_ms), ("TEST_WORKER_ACTIVITIES", activities)])
}

/// A worker with a run in memory and an attempt under way that outlasts its grace.
async fn out_of_time(fleet: Arc<Fleet>, grace_ms: &str) -> anyhow::Result<()> {
    let name = format!("grace-{grace_ms}");
    let world = World::new(&fleet, &name)?;
    world.remember(&samples::workflows());
    fleet.observer().hold("untimed");
    let leaving = worker(&fleet, &format!("leaving-{grace_ms}"), &name, grace_ms, "200")?;
    let item = format!("item-{grace_ms}");
    let cached = world.start(&purchase, "cached", Purchase { item: item.clone(), pause_ms: 1 }).await?;
    eventually("the purchase waits for its signal", Duration::from_secs(30), || async {
        Ok(world.variants(&cached).await?.contains(&"ChildWorkflowCompleted".to_owned()).then_some(()))
    })
    .await?;
    let running = world.start(&lonely, "running", "work".to_owned()).await?;
    world.wait_for_calls("running", 1).await?;
    let _staying = worker(&fleet, &format!("staying-{grace_ms}"), &name, "20000", "200")?;
    let clock = SystemClock::new();
    leaving.terminate()?;
    let told = clock.monotonic();
    let status = leaving.wait(Duration::from_secs(12)).await?;
    println!("grace {grace_ms} ms: the worker ended with {status} after {} ms", (clock.monotonic() - told).as_millis());
    anyhow::ensure!(status.success(), "{status}: {}", leaving.tail());
    // What was cut off counts as an attempt, and the next one begins elsewhere by the retry policy, not when somebody notices.
    let left = clock.monotonic();
    world.observer().wait_for_calls(&name, "running", 2, ELSEWHERE).await?;
    assert_eq!(world.result(&running).await?, "work at attempt 2");
    cached.signal(APPROVE, format!("approved {item}")).await?;
    let result = tokio::time::timeout(ELSEWHERE, cached.result()).await.context("the run that the worker had in memory stays with it")??;
    println!("grace {grace_ms} ms: both runs went on elsewhere {} ms after the worker's end", (clock.monotonic() - left).as_millis());
    assert_eq!(result, receipt(&item));
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activities_that_outlast_the_grace_of_their_worker_begin_elsewhere_at_once() {
    with_fleet(Plan::new(Topology::Single, "grace"), |fleet| async move {
        out_of_time(fleet.clone(), "0").await?;
        fleet.observer().release("untimed");
        out_of_time(fleet.clone(), "1000").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_worker_beats_for_what_it_runs_until_it_is_done() {
    with_fleet(Plan::new(Topology::Single, "beats"), |fleet| async move {
        let world = World::new(&fleet, "beats")?;
        world.remember(&samples::workflows());
        fleet.observer().hold("steady");
        let leaving = worker(&fleet, "leaving", "beats", "20000", "200")?;
        let handle = world.start(&steadily, "steady", "work".to_owned()).await?;
        world.wait_for_calls("steady", 1).await?;
        let _staying = worker(&fleet, "staying", "beats", "20000", "200")?;
        leaving.terminate()?;
        // Three times as long as silence would be put up with.
        let clock = SystemClock::new();
        let until = clock.monotonic() + Duration::from_secs(6);
        holds("time passes", Duration::from_secs(20), || clock.monotonic() >= until).await?;
        fleet.observer().release("steady");
        assert_eq!(world.result(&handle).await?, "work at attempt 1");
        let status = leaving.wait(Duration::from_secs(10)).await?;
        anyhow::ensure!(status.success(), "{status}: {}", leaving.tail());
        assert_eq!(world.calls_of("steady").len(), 1);
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_a_draining_worker_and_its_silence_is_noticed() {
    with_fleet(Plan::new(Topology::Single, "second-signal"), |fleet| async move {
        let world = World::new(&fleet, "signals")?;
        world.remember(&samples::workflows());
        fleet.observer().hold("untimed");
        let impatient = [worker(&fleet, "by-sigterm", "signals", "60000", "1")?, worker(&fleet, "by-sigint", "signals", "60000", "1")?];
        let handles = futures::future::try_join_all(["one", "two"].map(|name| world.start(&lonely, name, name.to_owned()))).await?;
        for name in ["one", "two"] {
            world.wait_for_calls(name, 1).await?;
        }
        let _staying = worker(&fleet, "staying", "signals", "20000", "10")?;
        for process in &impatient {
            process.terminate()?;
            holds("the worker drains", Duration::from_secs(20), || process.tail().contains("shutting down")).await?;
            anyhow::ensure!(process.is_running(), "it waits for what it runs");
        }
        impatient[0].terminate()?;
        impatient[1].interrupt()?;
        for process in &impatient {
            assert_eq!(process.wait(Duration::from_secs(5)).await?.code(), Some(130));
        }
        for (name, handle) in ["one", "two"].iter().zip(&handles) {
            world.observer().wait_for_calls("signals", name, 2, NOTICED).await?;
            assert_eq!(world.result(handle).await?, format!("{name} at attempt 2"));
        }
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}

/// How long nothing happened at most, while somebody looks.
#[derive(Default)]
struct Progress {
    longest_ms: AtomicU64,
}

impl Progress {
    /// Looks until all activities have been seen.
    async fn watch(&self, world: &World) -> anyhow::Result<()> {
        let clock = SystemClock::new();
        let (mut seen, mut since) = (0, clock.monotonic());
        eventually("all activities have been seen", Duration::from_secs(120), || {
            let (now, at) = (world.calls_of("crowd").len(), clock.monotonic());
            if now > seen {
                (seen, since) = (now, at);
            }
            self.longest_ms.fetch_max(u64::try_from((at - since).as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            std::future::ready(Ok((distinct(world) >= CROWD as usize).then_some(())))
        })
        .await
    }
}

fn distinct(world: &World) -> usize {
    world.calls_of("crowd").iter().map(|call| call.idempotency_key.clone()).collect::<std::collections::BTreeSet<_>>().len()
}

async fn restart(process: &Process) -> anyhow::Result<()> {
    process.terminate()?;
    process.wait(Duration::from_secs(40)).await?;
    process.restart(&[])
}

/// A hundred activities, and everything between them and their owner is restarted in order, one after the other.
async fn restarts(fleet: Arc<Fleet>, cuts: bool) -> anyhow::Result<()> {
    let world = World::new(&fleet, "crowd")?;
    world.remember(&samples::workflows());
    let workers = [worker(&fleet, "worker-1", "crowd", "20000", "8")?, worker(&fleet, "worker-2", "crowd", "20000", "8")?];
    let handle = world.start(&crowd, "crowd", CROWD).await?;
    let progress = Arc::new(Progress::default());
    let watching = harvest_runtime::spawn_owned("watch", {
        let (progress, world) = (progress.clone(), world.clone());
        async move { progress.watch(&world).await }
    });
    let seen = |count| {
        let world = world.clone();
        async move { holds(format!("{count} activities have been seen"), Duration::from_secs(60), || distinct(&world) >= count).await }
    };
    for (step, count) in [5, 15, 25, 35, 45, 55].into_iter().enumerate() {
        seen(count).await?;
        match (cuts, step) {
            (true, _) => fleet.proxy(Way::Frontend)?.cut(),
            (false, 0 | 2 | 4) => restart(&workers[(step / 2) % 2]).await?,
            (false, 1 | 5) => restart(fleet.process("matching-1")?).await?,
            (false, _) => restart(fleet.process("frontend-1")?).await?,
        }
    }
    watching.await.context("the watch panicked")??;
    let attempts = tokio::time::timeout(Duration::from_secs(60), handle.result()).await.context("the crowd does not end")??;
    let longest = Duration::from_millis(progress.longest_ms.load(Ordering::Relaxed));
    println!("cuts: {cuts}; longest time without progress {longest:?}, {attempts} attempts for {CROWD} activities");
    anyhow::ensure!(longest < NOTICED, "nothing happened for {longest:?}");
    if !cuts {
        anyhow::ensure!(attempts == CROWD, "orderly ends have cost {} attempts", attempts - CROWD);
    }
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orderly_restarts_of_workers_matching_and_frontend_cost_no_attempt_of_a_hundred_activities() {
    with_fleet(Plan::new(Topology::Single, "crowd"), |fleet| restarts(fleet, false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_end_without_being_told_leave_no_task_to_its_timeout() {
    with_fleet(Plan::new(Topology::Single, "cut-crowd").proxied(Way::Frontend), |fleet| restarts(fleet, true)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_are_restarted_one_after_the_other_lose_nothing() {
    with_fleet(Plan::new(Topology::Single, "rolling"), |fleet| async move {
        let world = World::new(&fleet, "rolling")?;
        world.remember(&samples::workflows());
        let mut workers = Vec::new();
        for number in 0..4 {
            workers.push(worker(&fleet, &format!("worker-{number}"), "rolling", "20000", "20")?);
        }
        let handles = futures::future::try_join_all((0..4).map(|number| {
            let options = StartOptions::new(format!("crowd-{number}"));
            world.start_with(&crowd, options, 60)
        }));
        let handles = handles.await?;
        for process in &workers {
            restart(process).await?;
        }
        for handle in handles {
            assert_eq!(world.result(&handle).await?, 60, "one attempt each");
        }
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}
