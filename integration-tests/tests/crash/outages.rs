//! Outages of what the services stand on.

use anyhow::Context as _;
use harvest_integration_tests::eventually;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::load::Load;
use harvest_integration_tests::samples;
use harvest_integration_tests::store::Stores;
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_runtime::{Clock, SystemClock};
use harvest_sdk::StartOptions;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long Redis and config are away; `HARVEST_OUTAGE_SECS` makes it longer.
fn outage() -> Duration {
    let seconds = std::env::var("HARVEST_OUTAGE_SECS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

fn tenant(fleet: &Arc<Fleet>) -> anyhow::Result<Arc<World>> {
    let world = World::new(fleet, "outage")?;
    world.serve(samples::workflows(), samples::activities())?;
    Ok(world)
}

/// Loads follow each other until the time is over.
async fn load_for(world: &Arc<World>, prefix: &str, span: Duration) -> anyhow::Result<usize> {
    let clock = SystemClock::new();
    let end = clock.monotonic() + span;
    let mut correct = 0;
    for round in 0_u32.. {
        correct += Load::new(&format!("{prefix}-{round}"), 10).run(world).await?.correct;
        if clock.monotonic() >= end {
            break;
        }
    }
    Ok(correct)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_killed_and_restarted_under_load_loses_nothing() {
    with_fleet(Plan::new(Topology::Double, "postgres").own_postgres(), |fleet| async move {
        let world = tenant(&fleet)?;
        let load = Load { longest: Duration::from_secs(120), ..Load::new("p", 60) };
        let (ended, in_load) = (load.ended.clone(), world.clone());
        let running = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
        for kill in 1..=2 {
            let enough = kill * 12;
            harvest_integration_tests::eventually::holds("some purchases have ended", Duration::from_secs(60), || ended.load(Ordering::Relaxed) >= enough)
                .await?;
            let mut server = fleet.database()?.own_server()?.lock().await;
            server.kill9().await?;
            server.restart().await?;
        }
        running.await.context("the load panicked")??;
        Load::new("after", 20).run(&world).await?;
        for name in fleet.process_names() {
            anyhow::ensure!(fleet.process(&name)?.is_running(), "{name} has ended");
        }
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_away_for_a_while_costs_nothing_and_limits_still_arrive() {
    with_fleet(Plan::new(Topology::Double, "redis").own_redis(), |fleet| async move {
        let world = tenant(&fleet)?;
        Load::new("before", 5).run(&world).await?;
        let redis = fleet.redis()?.own_server()?;
        redis.kill9().await?;
        println!("{} purchases correct without Redis", load_for(&world, "during", outage()).await?);
        // Without the bus the owners pull: within seconds.
        let body = serde_json::json!({"max_workflow_execution_timeout_secs": 50_000_000, "wait_secs": 10});
        let changed = world.api().patch("/admin/limits", &body).await?;
        anyhow::ensure!(changed.status.is_success() && changed.body["pending"] == serde_json::json!([]), "{changed:?}");
        redis.restart(&[])?;
        Load::new("after", 10).run(&world).await?;
        let body = serde_json::json!({"max_workflow_execution_timeout_secs": null, "wait_secs": 10});
        let changed = eventually("the bus is back", Duration::from_secs(30), || async {
            let changed = world.api().patch("/admin/limits", &body).await?;
            Ok((changed.body["pending"] == serde_json::json!([])).then_some(changed))
        });
        changed.await?;
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_away_for_a_while_stops_no_run() {
    with_fleet(Plan::new(Topology::Single, "config"), |fleet| async move {
        let world = tenant(&fleet)?;
        Load::new("before", 5).run(&world).await?;
        let config = fleet.process("config-1")?;
        config.kill9().await?;
        println!("{} purchases correct without config", load_for(&world, "during", outage()).await?);
        config.restart(&[])?;
        fleet.wait_one_ready("config-1").await?;
        Load::new("after", 10).run(&world).await?;
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}

/// Config dies between the commit of new limits and their publication: they hold nevertheless, once it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_committed_and_not_published_arrive_after_config_is_back() {
    let plan = Plan::new(Topology::Single, "unpublished").environment("config-1", "HARVEST_CRASH_POINT", "config.committed");
    with_fleet(plan, |fleet| async move {
        let world = tenant(&fleet)?;
        Load::new("before", 3).run(&world).await?;
        let config = fleet.process("config-1")?;
        let body = serde_json::json!({"max_workflow_execution_timeout_secs": 1_000, "wait_secs": 1});
        let call = world.api().patch("/admin/limits", &body);
        let (answer, ended) = tokio::join!(call, config.wait(Duration::from_secs(30)));
        ended.context("config never reached its point")?;
        anyhow::ensure!(!answer.as_ref().is_ok_and(|answer| answer.status.is_success()), "nobody can have acknowledged: {answer:?}");
        config.restart(&[("HARVEST_CRASH_POINT", "")])?;
        fleet.wait_one_ready("config-1").await?;
        let mut number = 0;
        eventually("the new limit holds", Duration::from_secs(20), || {
            number += 1;
            let options = StartOptions::new(format!("limited-{number}")).execution_timeout(Duration::from_secs(2_000));
            let world = world.clone();
            async move {
                let handle = world.start_with(&samples::echo, options, "x".to_owned()).await?;
                Ok((handle.describe().await?.execution_timeout_ms == 1_000_000).then_some(()))
            }
        })
        .await?;
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}
