//! Rolling restarts and short-lived connections under a steady stream of starts.

use anyhow::Context as _;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::samples::echo;
use harvest_integration_tests::store::Stores;
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_runtime::{Clock, SystemClock};
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often a run is started.
const EVERY: Duration = Duration::from_millis(20);
/// No start may take longer. A second by itself; but eleven processes restart on a machine that may have much else to do. The figure is printed.
const LONGEST_START: Duration = Duration::from_secs(60);

/// Starts runs over one channel until told to stop, and waits for each. How many there were, and the longest that a start took.
async fn steady_starts(world: Arc<World>, stop: Arc<AtomicBool>) -> anyhow::Result<(u64, Duration)> {
    let (clock, longest_ms) = (SystemClock::new(), Arc::new(AtomicU64::new(0)));
    let mut under_way = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let (world, longest_ms, number) = (world.clone(), longest_ms.clone(), under_way.len());
        under_way.push(harvest_runtime::spawn_owned("start", async move {
            let clock = SystemClock::new();
            let begun = clock.monotonic();
            let handle = world.client().start(&echo, StartOptions::new(format!("run-{number}")), number.to_string()).await.context("start")?;
            longest_ms.fetch_max(u64::try_from((clock.monotonic() - begun).as_millis())?, Ordering::Relaxed);
            let result = tokio::time::timeout(LONGEST_START * 2, handle.result()).await.context("no result")?.context("result")?;
            anyhow::ensure!(result == number.to_string(), "{result}");
            anyhow::Ok(())
        }));
        clock.sleep(EVERY).await;
    }
    let count = u64::try_from(under_way.len())?;
    for one in under_way {
        one.await.context("a start panicked")??;
    }
    Ok((count, Duration::from_millis(longest_ms.load(Ordering::Relaxed))))
}

async fn rolling(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "rolling")?;
    let _worker = world.worker(WorkerConfig::default(), workflows![echo], activities![])?;
    world.result(&world.start(&echo, "before", "x".to_owned()).await?).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let starting = harvest_runtime::spawn_owned("starts", steady_starts(world.clone(), stop.clone()));
    // Connections become old several times before anybody restarts.
    let clock = SystemClock::new();
    let until = clock.monotonic() + Duration::from_secs(4);
    holds("time passes", Duration::from_secs(20), || clock.monotonic() >= until).await?;
    for name in ["frontend-1", "frontend-2", "frontend-3", "history-1", "matching-1", "history-2", "matching-2"] {
        let process = fleet.process(name)?;
        process.terminate()?;
        let status = process.wait(Duration::from_secs(60)).await?;
        anyhow::ensure!(status.success(), "{name} ended with {status}");
        process.restart(&[])?;
        fleet.wait_one_ready(name).await?;
    }
    stop.store(true, Ordering::Relaxed);
    let (count, longest) = starting.await.context("the starts panicked")??;
    println!("{count} starts, the longest took {longest:?}");
    anyhow::ensure!(longest < LONGEST_START, "a start took {longest:?}");
    let logs = world.audit(&Stores::open(&fleet).await?).await?;
    anyhow::ensure!(u64::try_from(logs.len())? == count + 1, "{count} starts made {} runs", logs.len() - 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_go_on_while_connections_age_and_every_process_is_restarted_in_turn() {
    let mut plan = Plan::new(Topology::Double, "deploy").copies("frontend", 3);
    for name in ["frontend-1", "frontend-2", "frontend-3"] {
        plan = plan.environment(name, "HARVEST_MAX_CONNECTION_AGE_MS", "500");
    }
    with_fleet(plan, rolling).await;
}
