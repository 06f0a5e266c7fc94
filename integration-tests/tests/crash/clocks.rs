//! Machines whose clocks are minutes apart. The database's clock stamps and judges; the machines' are only shown.

use futures::future::try_join_all;
use harvest_integration_tests::eventually;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::store::{Fences, Stores};
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_runtime::{Clock, SystemClock};
use harvest_sdk::WorkflowDefinition;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// What the runs wait for.
const WAIT: Duration = Duration::from_secs(8);
/// No earlier than this before its time may anything fire: what a look at the database's clock can be off.
const EARLY: Duration = Duration::from_millis(100);
/// A takeover and a loaded machine.
const LATE: Duration = Duration::from_secs(6);

#[workflow]
async fn naps(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.timer("nap", WAIT).await
}

/// Fails once; its second attempt is due after the wait.
#[activity(start_to_close = "60s", retry = RetryPolicy::fixed(2, WAIT).with_jitter(Jitter::None))]
async fn fails_once(ctx: &ActivityContext) -> Result<u32, ActivityFailure> {
    if ctx.attempt() == 1 { Err(ActivityFailure::new("Once", "the first attempt fails")) } else { Ok(ctx.attempt()) }
}

/// Ends by its own timeout only.
#[activity(start_to_close = "8s", retry = RetryPolicy::none())]
async fn hangs(_ctx: &ActivityContext) -> Result<u32, ActivityFailure> {
    std::future::pending().await
}

#[workflow]
async fn retries(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.execute_activity(&fails_once, ()).await.map(drop)
}

#[workflow]
async fn times_out(ctx: &WorkflowContext) -> Result<(), String> {
    match ctx.execute_activity(&hangs, ()).await {
        Err(HarvestError::Timeout { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[workflow]
async fn never_ends(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.receive_signal("never").await
}

/// How long a run took at least and at most, by the clock of this process: it began while its start was under way.
async fn timed<W>(world: &World, workflow: &(impl Fn() -> W + Sync), options: StartOptions) -> anyhow::Result<(String, Duration, Duration)>
where
    W: WorkflowDefinition<Input = (), Output = ()>,
{
    let (clock, name) = (SystemClock::new(), format!("{options:?}"));
    let asked = clock.monotonic();
    let handle = world.start_with(workflow, options, ()).await?;
    let begun = clock.monotonic();
    let ended = tokio::time::timeout(WAIT + LATE * 2, handle.result()).await;
    let now = clock.monotonic();
    anyhow::ensure!(ended.is_ok(), "{name} has not ended after {:?}", now - begun);
    Ok((name, now - begun, now - asked))
}

async fn apart(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "apart")?;
    world.serve(workflows![naps, retries, times_out, never_ends], activities![fails_once, hangs])?;
    let fences = Fences::open(&fleet).await?;
    eventually("both own shards", Duration::from_secs(30), || async {
        let owners = fences.owners(&fleet).await?;
        Ok(["history-1", "history-2"].iter().all(|name| owners.values().filter(|owner| owner == name).count() == 2).then_some(()))
    })
    .await?;
    let handle = world.start(&naps, "known", ()).await?;
    handle.terminate("only to make the types known").await?;
    // Enough of each kind for every shard to have some.
    let mut runs = Vec::new();
    for number in 0..8 {
        let name = move |kind: &str| StartOptions::new(format!("{kind}-{number}"));
        let world = world.clone();
        runs.push(harvest_runtime::spawn_owned("timed runs", async move {
            tokio::try_join!(
                timed(&world, &naps, name("naps")),
                timed(&world, &retries, name("retries")),
                timed(&world, &times_out, name("times-out")),
                timed(&world, &never_ends, name("execution").execution_timeout(WAIT)),
            )
        }));
    }
    let clock = SystemClock::new();
    let until = clock.monotonic() + Duration::from_secs(3);
    eventually("time passes", Duration::from_secs(20), || async { Ok((clock.monotonic() >= until).then_some(())) }).await?;
    // Deadlines that the one has set are the other's from now on.
    fleet.process("history-1")?.kill9().await?;
    for run in try_join_all(runs).await? {
        let (a, b, c, d) = run?;
        for (name, least, most) in [a, b, c, d] {
            println!("{name}: {} to {} ms", least.as_millis(), most.as_millis());
            anyhow::ensure!(most + EARLY >= WAIT && least <= WAIT + LATE, "{name} took {least:?} to {most:?} instead of {WAIT:?}");
        }
    }
    let skew = fleet.metric("history-2", "harvest_clock_skew_seconds").await?;
    anyhow::ensure!((-301.0..=-299.0).contains(&skew), "the skew of history-2 is shown as {skew} s");
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_hold_across_owners_whose_clocks_are_ten_minutes_apart() {
    let mut plan = Plan::new(Topology::Single, "clocks").copies("history", 2).copies("timer-scanner", 2);
    for (process, skew_ms) in [("history-1", "300000"), ("history-2", "-300000"), ("timer-scanner-1", "-300000"), ("timer-scanner-2", "300000")] {
        plan = plan.environment(process, "HARVEST_CLOCK_SKEW_MS", skew_ms);
    }
    with_fleet(plan, apart).await;
}
