//! Processes die at random under load.

use crate::strike::{TAKEOVER, deciding_worker};
use anyhow::Context as _;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::load::Load;
use harvest_integration_tests::process::Process;
use harvest_integration_tests::samples;
use harvest_integration_tests::store::{Fences, Stores};
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_runtime::{IdSource, SeededIds, SystemIds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_die_at_random() {
    with_fleet(Plan::new(Topology::Double, "random"), soak).await;
}

async fn soak(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let runs = usize::try_from(number("HARVEST_SOAK_RUNS", 60))?;
    let kills = usize::try_from(number("HARVEST_SOAK_KILLS", 5))?;
    let seed = number("HARVEST_SOAK_SEED", SystemIds.random_u64());
    println!("{runs} purchases, {kills} kills, HARVEST_SOAK_SEED={seed}");
    let random = SeededIds::new(seed);

    let world = World::new(&fleet, "soak")?;
    let _deciding = deciding_worker(&world)?;
    let workers = [fleet.start_worker("worker-1", "soak", "default", &[])?, fleet.start_worker("worker-2", "soak", "default", &[])?];
    let load = Load { longest: Duration::from_secs(180), ..Load::new("p", runs) };
    let (ended, in_load) = (load.ended.clone(), world.clone());
    let running = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });

    let fences = Fences::open(&fleet).await?;
    let (names, mut slowest) = (fleet.process_names(), Duration::ZERO);
    for kill in 1..=kills {
        let enough = kill * runs / (kills + 1);
        holds(format!("{enough} purchases have ended"), Duration::from_secs(180), || ended.load(Ordering::Relaxed) >= enough || running.is_finished()).await?;
        let choice = usize::try_from(random.random_u64() % u64::try_from(names.len() + workers.len())?)?;
        match names.get(choice) {
            Some(name) => slowest = slowest.max(kill_and_restart(&fleet, name, &fences).await?),
            None => restart_worker(&workers[choice - names.len()]).await?,
        }
    }
    let outcome = running.await.context("the load panicked")??;
    println!("{} purchases correct, {} steps repeated, slowest takeover {} ms", outcome.correct, outcome.repeated, slowest.as_millis());
    fleet.wait_ready().await?;
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

async fn restart_worker(worker: &Process) -> anyhow::Result<()> {
    println!("kill {}", worker.name());
    worker.kill9().await?;
    worker.restart(&[])
}

/// An owner is started again only when others have its shards.
async fn kill_and_restart(fleet: &Fleet, name: &str, fences: &Fences) -> anyhow::Result<Duration> {
    println!("kill {name}");
    let process = fleet.process(name)?;
    let before = fences.shards().await?;
    process.kill9().await?;
    let mut took = Duration::ZERO;
    if name.starts_with("history") {
        let clock = harvest_runtime::SystemClock::new();
        let lost: Vec<i32> = before
            .iter()
            .filter(|(_, view)| view.address.as_deref().and_then(|address| fleet.process_at(address)).as_deref() == Some(name))
            .map(|(shard, _)| *shard)
            .collect();
        let taken = harvest_integration_tests::eventually("others have the dead owner's shards", TAKEOVER, || async {
            let now = fences.shards().await?;
            Ok(lost.iter().all(|shard| now[shard].epoch > before[shard].epoch).then_some(()))
        });
        taken.await?;
        took = harvest_runtime::Clock::monotonic(&clock);
        println!("{} shards have other owners after {} ms", lost.len(), took.as_millis());
    }
    process.restart(&[])?;
    fleet.wait_one_ready(name).await?;
    Ok(took)
}

/// The one process of `harvest dev` is killed under load, again and again, also with a commit of its embedded store under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harvest_dev_is_killed_again_and_again() {
    with_fleet(Plan::new(Topology::Dev, "dev-kills"), |fleet| async move {
        let world = World::new(&fleet, "dev")?;
        world.serve(samples::workflows(), samples::activities())?;
        let load = Load { longest: Duration::from_secs(120), ..Load::new("p", 40) };
        let (ended, in_load) = (load.ended.clone(), world.clone());
        let running = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
        let dev = fleet.process("dev")?;
        holds("some purchases have ended", Duration::from_secs(60), || ended.load(Ordering::Relaxed) >= 8).await?;
        dev.kill9().await?;
        for point in ["history.in_flight:15", "history.committed:15"] {
            dev.restart(&[("HARVEST_CRASH_POINT", point)])?;
            dev.wait(Duration::from_secs(60)).await.with_context(|| format!("{point} was never reached"))?;
        }
        dev.restart(&[("HARVEST_CRASH_POINT", "")])?;
        let outcome = running.await.context("the load panicked")??;
        println!("{} purchases correct, {} steps repeated", outcome.correct, outcome.repeated);
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}
