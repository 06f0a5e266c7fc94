//! Workers that die or freeze, and owners that die while they load.

use crate::strike::{self, How, report_takeover, struck};
use anyhow::Context as _;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::load::Load;
use harvest_integration_tests::samples::{self, considered, lonely};
use harvest_integration_tests::store::{Fences, Stores};
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_runtime::{Clock, SystemClock};
use harvest_sdk::{StartOptions, WorkerConfig};
use std::sync::Arc;
use std::time::Duration;

/// A silent worker is noticed within this.
const NOTICED: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_without_timeouts_whose_worker_is_killed_is_noticed_and_tried_again() {
    with_fleet(Plan::new(Topology::Single, "lost-worker"), |fleet| async move {
        let world = World::new(&fleet, "lost")?;
        fleet.observer().hold("untimed");
        let victim = fleet.start_worker("victim", "lost", "default", &[])?;
        world.remember(&samples::workflows());
        let handle = world.start(&lonely, "alone", "work".to_owned()).await?;
        world.wait_for_calls("alone", 1).await?;
        victim.kill9().await?;
        let clock = SystemClock::new();
        let killed = clock.monotonic();
        world.serve(samples::workflows(), samples::activities())?;
        let observer = fleet.observer().clone();
        holds("a second attempt", NOTICED, || observer.calls_of("lost", "alone").len() >= 2).await?;
        println!("noticed and tried again after {} ms", (clock.monotonic() - killed).as_millis());
        assert_eq!(world.result(&handle).await?, "work at attempt 2");
        world.audit(&Stores::open(&fleet).await?).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_killed_with_the_first_tasks_of_its_own_starts_loses_none_of_them() {
    const STARTS: u32 = 12;
    with_fleet(Plan::new(Topology::Single, "own-starts"), |fleet| async move {
        let world = World::new(&fleet, "own")?;
        let arms = [("HARVEST_CRASH_POINT", "worker.deciding:5:kill"), ("TEST_WORKER_STARTS", &STARTS.to_string())];
        let victim = fleet.start_worker("victim", "own", "mine", &arms)?;
        struck(&victim, How::Kill).await?;
        let given = fleet.counted("harvest_workflow_eager_started_total{queue=\"mine\",workflow=\"considered\"}").await?;
        assert!(given >= 5.0, "{given} tasks had come with answers");
        let clock = SystemClock::new();
        let killed = clock.monotonic();
        let _other = world.worker(WorkerConfig::default().with_queues(["mine"]), samples::workflows(), samples::activities())?;
        // Those that were not started yet are now; those that were are found.
        for number in 0..STARTS {
            let options = StartOptions::new(format!("own-{number}")).task_queue("mine");
            let handle = world.start_with(&considered, options, format!("text {number}")).await?;
            assert_eq!(world.result(&handle).await?, format!("text {number}"));
        }
        let took = clock.monotonic() - killed;
        println!("{given} tasks had come with answers; all runs were through after {} ms", took.as_millis());
        assert!(took < NOTICED, "{took:?}");
        assert_eq!(world.audit(&Stores::open(&fleet).await?).await?.len(), usize::try_from(STARTS)?);
        Ok(())
    })
    .await;
}

/// Purchases whose activities run in two worker processes, one of which is struck in the middle of a step.
async fn worker_struck(fleet: Arc<Fleet>, point: &str, how: How) -> anyhow::Result<()> {
    let world = World::new(&fleet, "struck")?;
    let _deciding = strike::deciding_worker(&world)?;
    let word = if how == How::Kill { "kill" } else { "stop" };
    let victim = fleet.start_worker("victim", "struck", "default", &[("HARVEST_CRASH_POINT", &format!("{point}:5:{word}"))])?;
    let load = Load::new("p", 30);
    let in_load = world.clone();
    let load = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
    struck(&victim, how).await?;
    // Only now is there another one.
    let _other = fleet.start_worker("other", "struck", "default", &[])?;
    let outcome = load.await.context("the load panicked")??;
    println!("{} correct, {} steps repeated", outcome.correct, outcome.repeated);
    let stores = Stores::open(&fleet).await?;
    let logs = world.audit(&stores).await?;
    if how == How::Stop {
        victim.thaw()?;
        // What it still had in hand it answers now, in vain: its own log says when it has found its way back.
        Load::new("later", 10).run(&world).await?;
        let again = world.audit(&stores).await?;
        let earlier = |log: &&harvest_integration_tests::audit::RunLog| logs.iter().any(|before| before.execution_id() == log.execution_id());
        let same = again.iter().filter(earlier).all(|log| logs.iter().any(|before| before.records == log.records));
        anyhow::ensure!(same, "a log has changed after its run had closed");
    }
    Ok(())
}

macro_rules! worker_strikes {
    ($($name:ident: $point:literal, $how:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                with_fleet(Plan::new(Topology::Single, stringify!($how)), |fleet| worker_struck(fleet, $point, How::$how)).await;
            }
        )*
    };
}

worker_strikes! {
    a_worker_killed_after_taking_an_activity_has_it_run_elsewhere: "worker.taken", Kill;
    a_worker_frozen_after_taking_an_activity_has_it_run_elsewhere: "worker.taken", Stop;
    a_worker_killed_between_doing_and_reporting_repeats_the_step_under_its_key: "worker.done", Kill;
    a_worker_frozen_between_doing_and_reporting_reports_in_vain: "worker.done", Stop;
}

/// The successor of a dead owner dies in turn while it loads.
async fn successor_struck(fleet: Arc<Fleet>, how: How) -> anyhow::Result<()> {
    let (first, second) = (fleet.process("history-1")?, fleet.process("history-2")?);
    let fences = Fences::open(&fleet).await?;
    // The second starts again, armed: it loads its own half first, then, at the third time, a shard of the first.
    second.kill9().await?;
    let word = if how == How::Kill { "kill" } else { "stop" };
    second.restart(&[("HARVEST_CRASH_POINT", &format!("history.loading:3:{word}"))])?;
    let world = World::new(&fleet, "twice")?;
    world.serve(samples::workflows(), samples::activities())?;
    let load = Load { longest: Duration::from_secs(120), ..Load::new("p", 40) };
    let in_load = world.clone();
    let load = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
    harvest_integration_tests::eventually("the second owns its half", Duration::from_secs(30), || async {
        Ok((fences.owners(&fleet).await?.values().filter(|owner| *owner == "history-2").count() == 2).then_some(()))
    })
    .await?;
    first.kill9().await?;
    struck(second, how).await?;
    first.restart(&[])?;
    let before = fences.shards().await?;
    report_takeover(&fleet, "history-2", &fences, &before).await?;
    load.await.context("the load panicked")??;
    if how == How::Stop {
        second.thaw()?;
        Load::new("later", 10).run(&world).await?;
    }
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_killed_while_it_loads_is_succeeded_in_turn() {
    with_fleet(Plan::new(Topology::Single, "loading-kill").copies("history", 2), |fleet| successor_struck(fleet, How::Kill)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_frozen_while_it_loads_is_succeeded_in_turn() {
    with_fleet(Plan::new(Topology::Single, "loading-stop").copies("history", 2), |fleet| successor_struck(fleet, How::Stop)).await;
}
