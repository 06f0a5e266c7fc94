//! Outages of what the services stand on.

use anyhow::Context as _;
use harvest_integration_tests::eventually;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::load::Load;
use harvest_integration_tests::samples;
use harvest_integration_tests::store::Stores;
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_proto::v1;
use harvest_proto::v1::workflow_service_client::WorkflowServiceClient;
use harvest_rpc::{Error, Reason};
use harvest_runtime::{Clock, SystemClock};
use harvest_sdk::StartOptions;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long Postgres, Redis, config and room on the disk are away; `HARVEST_OUTAGE_SECS` makes it longer.
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

/// A call that its caller would wait for an hour for: what the fleet says by itself.
pub async fn refusal(world: &World) -> anyhow::Result<Error> {
    let request = v1::StartWorkflowRequest {
        namespace: world.namespace().to_owned(),
        workflow_type: "echo".to_owned(),
        workflow_id: "during".to_owned(),
        request_id: "during".to_owned(),
        ..v1::StartWorkflowRequest::default()
    };
    let mut request = tonic::Request::new(request);
    request.set_timeout(Duration::from_secs(3_600));
    let answer = WorkflowServiceClient::new(world.channel().await?).start_workflow(request).await;
    Ok(Error::from(answer.err().context("a start was accepted by a fleet without a store")?))
}

/// Callers are told, and told when to try again; nobody hangs until their own deadline.
async fn callers_are_told(world: &World) -> anyhow::Result<()> {
    let error = tokio::time::timeout(Duration::from_secs(60), refusal(world)).await.context("the caller hangs")??;
    println!("a start is told: {error}");
    anyhow::ensure!(error.reason == Reason::Unavailable && error.retry_after.is_some(), "{error:?}");
    Ok(())
}

/// The database is away for longer than any call, lease and session waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_stopped_for_a_while_loses_nothing_and_the_fleet_recovers_by_itself() {
    with_fleet(Plan::new(Topology::Double, "no-postgres").own_postgres(), |fleet| async move {
        let world = tenant(&fleet)?;
        let load = Load { longest: Duration::from_secs(120) + outage(), ..Load::new("p", 60) };
        let (ended, in_load) = (load.ended.clone(), world.clone());
        let running = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
        harvest_integration_tests::eventually::holds("some purchases have ended", Duration::from_secs(60), || ended.load(Ordering::Relaxed) >= 12).await?;
        let clock = SystemClock::new();
        let back_at = clock.monotonic() + outage();
        let mut server = fleet.database()?.own_server()?.lock().await;
        server.kill9().await?;
        callers_are_told(&world).await?;
        clock.sleep(back_at.saturating_sub(clock.monotonic())).await;
        let before = ended.load(Ordering::Relaxed);
        server.restart().await?;
        let outcome = running.await.context("the load panicked")??;
        println!("{} purchases correct, {} of them before Postgres was back, {} steps repeated", outcome.correct, before, outcome.repeated);
        Load::new("after", 20).run(&world).await?;
        for name in fleet.process_names() {
            anyhow::ensure!(fleet.process(&name)?.is_running(), "{name} has ended");
        }
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}

/// The file system of the embedded store takes nothing more, as if it were full, while orders are under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harvest_dev_on_a_full_disk_tells_callers_and_goes_on_when_there_is_room() {
    with_fleet(Plan::new(Topology::Dev, "full-disk").limited_files(), |fleet| async move {
        let world = tenant(&fleet)?;
        let load = Load { longest: Duration::from_secs(120) + outage(), ..Load::new("p", 40) };
        let (ended, in_load) = (load.ended.clone(), world.clone());
        let running = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
        harvest_integration_tests::eventually::holds("some purchases have ended", Duration::from_secs(60), || ended.load(Ordering::Relaxed) >= 8).await?;
        let dev = fleet.process("dev")?;
        for _ in 0..2 {
            let clock = SystemClock::new();
            let room_at = clock.monotonic() + outage();
            dev.limit_files(Some(1))?;
            callers_are_told(&world).await?;
            clock.sleep(room_at.saturating_sub(clock.monotonic())).await;
            dev.limit_files(None)?;
            Load::new(&format!("room-{}", room_at.as_millis()), 5).run(&world).await?;
        }
        running.await.context("the load panicked")??;
        anyhow::ensure!(dev.is_running(), "harvest dev has ended");
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
