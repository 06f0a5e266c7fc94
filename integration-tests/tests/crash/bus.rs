//! A Redis whose subscribers are cut off, whose lines fall silent, and that says things nobody should believe.

use anyhow::Context as _;
use harvest_integration_tests::eventually;
use harvest_integration_tests::fleet::{Way, with_fleet};
use harvest_integration_tests::load::Load;
use harvest_integration_tests::proxy::Fault;
use harvest_integration_tests::samples;
use harvest_integration_tests::store::Stores;
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_runtime::{Clock, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// A change reaches every process within this without the bus. 5 s is what is promised; a loaded machine gets more, and the figures are printed.
const WITHOUT_BUS: Duration = Duration::from_secs(20);
/// How long Redis may take to answer this test.
const PATIENCE: Duration = Duration::from_secs(20);
/// Messages of a flood.
const FLOOD: u64 = 10_000;

async fn connect(fleet: &Fleet) -> anyhow::Result<redis::aio::MultiplexedConnection> {
    // A flood takes its time on a loaded machine.
    let patient = redis::AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    Ok(redis::Client::open(fleet.redis()?.url.as_str())?.get_multiplexed_async_connection_with_config(&patient).await?)
}

/// Changes the one limit there is; every shard must decide by it in time. Gives how long that took.
async fn patch(world: &World, seconds: u64, longest: Duration) -> anyhow::Result<Duration> {
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    let body = serde_json::json!({"max_workflow_execution_timeout_secs": seconds, "wait_secs": 10});
    let changed = tokio::time::timeout(longest, world.api().patch("/admin/limits", &body)).await.context("the change hangs")??;
    anyhow::ensure!(changed.status.is_success() && changed.body["pending"] == serde_json::json!([]), "{changed:?}");
    Ok(clock.monotonic() - begun)
}

/// Every process uses the same version, the newest.
async fn all_have_the_same(fleet: &Fleet) -> anyhow::Result<()> {
    let subscribers: Vec<String> = fleet.process_names().into_iter().filter(|name| name.starts_with("history") || name.starts_with("frontend")).collect();
    eventually("all processes have one version", WITHOUT_BUS, || async {
        let mut versions = Vec::new();
        for name in &subscribers {
            versions.push(fleet.metric(name, "harvest_config_version").await?.to_string());
        }
        versions.dedup();
        anyhow::ensure!(versions.len() == 1, "{versions:?}");
        Ok(Some(()))
    })
    .await
}

async fn distrust(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "bus")?;
    world.serve(samples::workflows(), samples::activities())?;
    Load::new("before", 3).run(&world).await?;
    let proxy = fleet.proxy(Way::Redis)?;

    let mut direct = connect(&fleet).await?;
    let killed: i64 = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query_async(&mut direct).await?;
    anyhow::ensure!(killed >= 2, "{killed} subscribers");
    println!("with all subscribers cut off, a change holds after {:?}", patch(&world, 50_000_001, WITHOUT_BUS).await?);
    all_have_the_same(&fleet).await?;

    proxy.strike(Fault::Silent);
    println!("on silent lines a change holds after {:?}", patch(&world, 50_000_002, WITHOUT_BUS).await?);
    all_have_the_same(&fleet).await?;
    let config = fleet.process("config-1")?;
    config.kill9().await?;
    config.restart(&[])?;
    fleet.wait_one_ready("config-1").await?;
    println!("after a start without a bus a change holds after {:?}", patch(&world, 50_000_003, WITHOUT_BUS).await?);
    // Each try to connect gives its socket back.
    let (before, opened, clock) = (sockets(&fleet)?, proxy.opened(), SystemClock::new());
    let until = clock.monotonic() + Duration::from_secs(6);
    eventually("time passes", Duration::from_secs(20), || async { Ok((clock.monotonic() >= until).then_some(())) }).await?;
    let after = sockets(&fleet)?;
    println!("{before} files are open before and {after} after {} more tries to connect", proxy.opened() - opened);
    anyhow::ensure!(after <= before + fleet.process_names().len() * 2, "{before} files were open, {after} are");
    for name in fleet.process_names() {
        let age = fleet.metric(&name, "harvest_config_staleness_seconds").await?;
        anyhow::ensure!(age < WITHOUT_BUS.as_secs_f64(), "the copy of {name} is {age} s old");
    }
    Load::new("during", 5).run(&world).await?;

    proxy.heal();
    proxy.bury();
    flood(&fleet, &world).await?;
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

/// How many files and sockets all processes have open.
fn sockets(fleet: &Fleet) -> anyhow::Result<usize> {
    let of = |name: &String| anyhow::Ok(std::fs::read_dir(format!("/proc/{}/fd", fleet.process(name)?.pid().context("it runs")?))?.count());
    fleet.process_names().iter().map(of).sum()
}

/// Old, doubled, reordered and broken messages change nothing but a counter.
async fn flood(fleet: &Fleet, world: &Arc<World>) -> anyhow::Result<()> {
    let mut direct = connect(fleet).await?;
    let listening = eventually("all listen again", Duration::from_secs(20), || {
        let mut direct = direct.clone();
        async move {
            let count: (String, i64) = redis::cmd("PUBSUB").arg("NUMSUB").arg(fleet.channel()).query_async(&mut direct).await?;
            Ok((count.1 >= 2).then_some(()))
        }
    });
    listening.await?;
    let mut pipe = redis::pipe();
    for number in 0..FLOOD {
        let text = match number % 4 {
            0 => format!(r#"{{"LimitsChanged":{{"version":{{"generation":1,"number":{}}},"limits":{{"max_workflow_execution_timeout_ms":1}}}}}}"#, number % 3),
            1 => format!(r#"{{"Beacon":{{"version":{{"generation":0,"number":{number}}}}}}}"#),
            2 => "{ not JSON".to_owned(),
            _ => r#"{"FromTheFuture":[1,2,3]}"#.to_owned(),
        };
        pipe.cmd("PUBLISH").arg(fleet.channel()).arg(text).ignore();
    }
    pipe.query_async::<()>(&mut direct).await?;
    eventually("the broken ones are counted", Duration::from_secs(20), || async {
        let counted = fleet.metric("frontend-1", "harvest_bus_unreadable_total").await?;
        anyhow::ensure!(counted > 0.0, "{counted}");
        Ok(Some(()))
    })
    .await?;
    let shown = world.api().get("/admin/limits").await?;
    assert_eq!(shown.body["limits"]["max_workflow_execution_timeout_secs"], serde_json::json!(50_000_003_u64), "{shown:?}");
    // Owners did not believe them either: a limit of one millisecond would end these.
    Load::new("after", 5).run(world).await?;
    println!("after a flood of {FLOOD} messages a change holds after {:?}", patch(world, 50_000_004, WITHOUT_BUS).await?);
    all_have_the_same(fleet).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_that_is_cut_silent_or_lying_stops_no_change() {
    with_fleet(Plan::new(Topology::Single, "bus").copies("history", 2).own_redis().proxied(Way::Redis), distrust).await;
}
