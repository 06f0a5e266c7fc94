//! Lines that go dead without a reset: to Postgres, to Redis, and between workers or clients and a frontend.

use anyhow::Context as _;
use futures::future::try_join_all;
use harvest_integration_tests::eventually;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::fleet::{Way, with_fleet};
use harvest_integration_tests::load::Load;
use harvest_integration_tests::proxy::Fault;
use harvest_integration_tests::samples::{self, echo};
use harvest_integration_tests::store::{Fences, Stores};
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_runtime::{Clock, OwnedTask, SystemClock};
use harvest_sdk::Client;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Within this a process says that its store is away: a statement is waited for 7 s, and one is sent every 2 s at the latest.
const RED: Duration = Duration::from_secs(15);
/// Within this it says that the store is back, and serves.
const GREEN: Duration = Duration::from_secs(20);
/// Within this workers and clients find a dead line and go on over another: the worst case is 9 s and a pause.
const FOUND: Duration = Duration::from_secs(20);

/// A load under way, with how many of it have ended.
struct UnderWay {
    ended: Arc<AtomicUsize>,
    running: OwnedTask<anyhow::Result<harvest_integration_tests::load::Outcome>>,
}

impl UnderWay {
    fn start(world: &Arc<World>, load: Load) -> Self {
        let (ended, in_load) = (load.ended.clone(), world.clone());
        Self { ended, running: harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await }) }
    }

    async fn some(&self, count: usize) -> anyhow::Result<()> {
        holds("some purchases have ended", Duration::from_secs(60), || self.ended.load(Ordering::Relaxed) >= count).await
    }

    async fn all(self) -> anyhow::Result<()> {
        let outcome = self.running.await.context("the load panicked")??;
        println!("{} purchases correct, {} steps repeated", outcome.correct, outcome.repeated);
        Ok(())
    }
}

fn tenant(fleet: &Arc<Fleet>, name: &str) -> anyhow::Result<Arc<World>> {
    let world = World::new(fleet, name)?;
    world.serve(samples::workflows(), samples::activities())?;
    Ok(world)
}

/// Waits until every process says over HTTP, and the services over gRPC, that it is ready, or that it is not because of the store.
async fn all_say(fleet: &Fleet, ready: bool, longest: Duration) -> anyhow::Result<()> {
    let names = fleet.process_names();
    let each = names.iter().map(|name| async move {
        eventually(format!("{name} says ready: {ready}"), longest, || async {
            let (status, text) = fleet.readiness(name).await?;
            anyhow::ensure!(ready == (status == 200), "{status}: {text}");
            anyhow::ensure!(ready || text.contains("store"), "{text}");
            let channel = tonic::transport::Endpoint::from_shared(fleet.address(name)?)?.connect().await?;
            let told = HealthClient::new(channel).check(HealthCheckRequest::default()).await?.into_inner().status;
            anyhow::ensure!(ready == (told == 1), "gRPC health says {told}");
            Ok(Some(()))
        })
        .await
    });
    try_join_all(each).await.map(drop)
}

async fn a_silent_database(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = tenant(&fleet, "silent")?;
    let proxy = fleet.proxy(Way::Postgres)?;
    let load = UnderWay::start(&world, Load { longest: Duration::from_secs(120), ..Load::new("p", 40) });
    let clock = SystemClock::new();
    for round in 1..=2 {
        load.some(round * 4).await?;
        let struck = clock.monotonic();
        proxy.strike(Fault::Silent);
        all_say(&fleet, false, RED).await?;
        println!("round {round}: everybody says so after {} ms", (clock.monotonic() - struck).as_millis());
        let healed = clock.monotonic();
        proxy.heal();
        proxy.bury();
        all_say(&fleet, true, GREEN).await?;
        println!("round {round}: everybody is ready again {} ms after the end", (clock.monotonic() - healed).as_millis());
        Load::new(&format!("after-{round}"), 5).run(&world).await?;
        println!("round {round}: new purchases are done {} ms after the end", (clock.monotonic() - healed).as_millis());
    }
    load.all().await?;
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_falls_silent_again_and_again_costs_no_session_and_shows_in_readiness() {
    with_fleet(Plan::new(Topology::Single, "silent-postgres").proxied(Way::Postgres), a_silent_database).await;
}

/// Continues as new until it has had enough.
#[workflow]
async fn laps(ctx: &WorkflowContext, left: u32) -> Result<u32, HarvestError> {
    ctx.timer("lap", Duration::from_millis(50)).await?;
    if left > 0 {
        ctx.continue_as_new(left - 1).await?;
    }
    Ok(left)
}

/// What the store holds of the runs that are open, for the message about one that hangs.
async fn what_hangs(fleet: &Fleet, namespace: &str) -> anyhow::Result<String> {
    let stores = Stores::open(fleet).await?;
    let mut hanging = String::new();
    for log in harvest_integration_tests::audit::logs(&stores, namespace).await? {
        if log.stored.row.mutable.closed_at.is_none() {
            let last: Vec<_> = log.records.iter().rev().take(3).collect();
            let (id, key) = (log.execution_id(), &log.stored.row.workflow_id);
            let shard = stores.shard_of(id)?;
            hanging
                .push_str(&format!("\nrun {id} {key} of shard {shard}, due at {:?}, tasks {:?}, last records {last:?}", log.stored.due_at, log.stored.tasks));
        }
    }
    Ok(hanging)
}

async fn lost_answers(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "lost")?;
    // One worker for all: a task goes to any worker of its queue.
    world.serve([samples::workflows(), workflows![laps]].concat(), samples::activities())?;
    let proxy = fleet.proxy(Way::Postgres)?;
    let load = UnderWay::start(&world, Load { longest: Duration::from_secs(90), ..Load::new("p", 60) });
    let chains = (0..4).map(|number| (number, world.clone())).map(|(number, world)| async move {
        let handle = world.start(&laps, &format!("chain-{number}"), 60).await?;
        tokio::time::timeout(Duration::from_secs(90), handle.result()).await.context("the chain does not end")?.context("the chain")
    });
    let chains = harvest_runtime::spawn_owned("chains", try_join_all(chains.collect::<Vec<_>>()));
    for (round, fault) in [Fault::AnswersLost, Fault::Refused, Fault::Refused, Fault::AnswersLost].into_iter().enumerate() {
        load.some((round + 1) * 8).await?;
        // Commits arrive and are not answered, or the connection ends in the middle; new connections work.
        proxy.strike_once(fault);
    }
    let all = async {
        load.all().await?;
        chains.await.context("the chains panicked")?
    };
    if let Err(error) = all.await {
        anyhow::bail!("{error:#}\n{}", what_hangs(&fleet, "lost").await?);
    }
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_whose_answers_are_lost_double_nothing_and_leave_no_gap() {
    with_fleet(Plan::new(Topology::Single, "lost-answers").proxied(Way::Postgres), lost_answers).await;
}

#[workflow]
async fn waits(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("word").await
}

/// As a load balancer that has forgotten an idle connection.
async fn a_forgotten_line(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "forgotten")?;
    // The only worker, and a client that waits: both over lines that are about to be forgotten.
    let _worker = world.worker(WorkerConfig::default(), workflows![echo, waits], activities![])?;
    let waiting = world.start(&waits, "waiting", ()).await?;
    let waits_for_end = harvest_runtime::spawn_owned("long wait", {
        let handle = world.client().handle::<waits>(&waits, "waiting");
        async move { handle.result().await }
    });
    world.result(&world.start(&echo, "before", "x".to_owned()).await?).await?;
    let direct = Client::connect([fleet.address("frontend-1")?])?.with_namespace("forgotten");
    let clock = SystemClock::new();
    let struck = clock.monotonic();
    fleet.proxy(Way::Frontend)?.strike_once(Fault::Silent);
    let handle = direct.start(&echo, StartOptions::new("after"), "done".to_owned()).await?;
    direct.handle::<waits>(&waits, "waiting").signal("word", "over").await?;
    let result = tokio::time::timeout(FOUND, handle.result()).await.context("the worker does not find its line dead")??;
    println!("a task that came after the line had died was done after {} ms", (clock.monotonic() - struck).as_millis());
    assert_eq!(result, "done");
    let ended = tokio::time::timeout(FOUND, waits_for_end).await.context("the client does not find its line dead")??;
    println!("the client that waited over it was answered after {} ms", (clock.monotonic() - struck).as_millis());
    assert_eq!(ended?, "over");
    assert_eq!(waiting.describe().await?.state, "COMPLETED");
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_is_dropped_in_silence_is_found_dead_by_worker_and_client() {
    with_fleet(Plan::new(Topology::Single, "forgotten-line").proxied(Way::Frontend), a_forgotten_line).await;
}

/// Nothing but pings for several times the interval of pings.
async fn idle(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "idle")?;
    let _worker = world.worker(WorkerConfig::default().with_identity("idle"), workflows![echo], activities![])?;
    world.result(&world.start(&echo, "before", "x".to_owned()).await?).await?;
    let proxy = fleet.proxy(Way::Frontend)?;
    let before = proxy.opened();
    let clock = SystemClock::new();
    let until = clock.monotonic() + IDLE;
    holds("time passes", IDLE * 2, || clock.monotonic() >= until).await?;
    assert_eq!(proxy.opened(), before, "no connection was closed for its pings, or for doing nothing");
    world.result(&world.start(&echo, "after", "x".to_owned()).await?).await?;
    assert_eq!(proxy.opened(), before);
    Ok(())
}

/// Pings go every 5 s from worker and client and every 10 s from the server.
const IDLE: Duration = Duration::from_secs(23);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_of_idle_workers_and_clients_are_taken_as_meant() {
    with_fleet(Plan::new(Topology::Single, "idle").proxied(Way::Frontend), idle).await;
}

/// One owner alone has no database, and its clock and the other's differ by a minute.
async fn one_owner_cut_off(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "cut")?;
    world.serve(samples::workflows(), samples::activities())?;
    let fences = Fences::open(&fleet).await?;
    eventually("both own shards", Duration::from_secs(30), || async {
        let owners = fences.owners(&fleet).await?;
        Ok(["history-1", "history-2"].iter().all(|name| owners.values().filter(|owner| owner == name).count() == 2).then_some(()))
    })
    .await?;
    fleet.observer().hold("untimed");
    // Activities of both owners' runs are under way.
    let names: Vec<String> = (0..8).map(|number| format!("alone-{number}")).collect();
    let handles = try_join_all(names.iter().map(|name| world.start(&samples::lonely, name, "work".to_owned()))).await?;
    for name in &names {
        world.wait_for_calls(name, 1).await?;
    }
    let before = fences.shards().await?;
    let lost: Vec<i32> = fences.owners(&fleet).await?.into_iter().filter(|(_, owner)| owner == "history-1").map(|(shard, _)| shard).collect();
    let load = UnderWay::start(&world, Load { longest: Duration::from_secs(90), ..Load::new("p", 40) });
    load.some(4).await?;
    let proxy = fleet.proxy(Way::Postgres)?;
    proxy.strike(Fault::Silent);
    let (owned, committed) = fences.takeover(&before, &lost, Duration::from_secs(15)).await?;
    println!("{} shards have another owner after {} ms and commit after {} ms", lost.len(), owned.as_millis(), committed.as_millis());
    fleet.observer().release("untimed");
    for (name, handle) in names.iter().zip(&handles) {
        // Its worker was heard of by the new owner: the attempt counts.
        assert_eq!(world.result(handle).await?, "work at attempt 1", "{name}");
        assert_eq!(world.calls_of(name).len(), 1, "{name}");
    }
    load.all().await?;
    proxy.heal();
    proxy.bury();
    fleet.wait_one_ready("history-1").await?;
    Load::new("after", 10).run(&world).await?;
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_cut_off_from_the_database_is_succeeded_and_acts_no_more() {
    let plan = Plan::new(Topology::Single, "cut-off").copies("history", 2).proxied_postgres_of("history-1");
    let plan = plan.environment("history-1", "HARVEST_CLOCK_SKEW_MS", "30000").environment("history-2", "HARVEST_CLOCK_SKEW_MS", "-30000");
    with_fleet(plan, one_owner_cut_off).await;
}
