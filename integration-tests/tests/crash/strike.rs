//! One process is struck at one named point under load.

use anyhow::Context as _;
use harvest_integration_tests::audit::RunLog;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::load::{Load, Outcome};
use harvest_integration_tests::process::Process;
use harvest_integration_tests::samples;
use harvest_integration_tests::store::{Fences, ShardView, Stores};
use harvest_integration_tests::{Fleet, Plan, World};
use harvest_runtime::OwnedTask;
use harvest_sdk::WorkerConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What happens at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT once the others have done its work.
    Stop,
}

impl How {
    fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
        }
    }
}

/// Who is struck, where.
#[derive(Debug, Clone, Copy)]
pub struct Strike {
    /// The process.
    pub victim: &'static str,
    /// The crash point.
    pub point: &'static str,
    /// At which pass.
    pub nth: u32,
    /// How.
    pub how: How,
}

/// The longest that a victim may take to reach its point.
const HIT: Duration = Duration::from_secs(60);
/// Tenants beyond which no more are added to reach a victim that serves only some of them.
const MOST_WORLDS: usize = 16;
/// The promise is 3 s; a loaded machine that also compiles gets more, and the figure is printed.
pub const TAKEOVER: Duration = Duration::from_secs(10);

/// A tenant with its load under way.
struct Front {
    world: Arc<World>,
    load: OwnedTask<anyhow::Result<Outcome>>,
}

fn open_front(fleet: &Arc<Fleet>, name: &str, count: usize) -> anyhow::Result<Front> {
    let world = World::new(fleet, name)?;
    world.serve(samples::workflows(), samples::activities())?;
    let (load, in_load) = (Load::new(name, count), world.clone());
    let load = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
    Ok(Front { world, load })
}

/// Runs the whole case on a fleet with two processes of the victim's service and one of every other.
pub async fn run(strike: Strike) {
    let service = strike.victim.rsplit_once('-').map_or(strike.victim, |(service, _)| service);
    let point = format!("{}:{}:{}", strike.point, strike.nth, strike.how.word());
    let name = format!("{}-{}", strike.point.replace(['.', '_'], "-"), strike.how.word());
    // With more shards every scanner has some.
    let shards = if service == "timer-scanner" { 12 } else { 4 };
    let plan = Plan::new(harvest_integration_tests::Topology::Single, &name).shards(shards).copies(service, 2);
    with_fleet(plan.environment(strike.victim, "HARVEST_CRASH_POINT", &point), |fleet| async move { on_fleet(&fleet, strike).await }).await;
}

async fn on_fleet(fleet: &Arc<Fleet>, strike: Strike) -> anyhow::Result<()> {
    let victim = fleet.process(strike.victim)?;
    let fences = Fences::open(fleet).await?;
    let mut fronts = vec![open_front(fleet, "front", 24)?];
    let before = wait_for_hit(fleet, strike, victim, &fences, &mut fronts).await?;
    println!("{} was struck at {}", strike.victim, strike.point);
    // Work for every shard, so that each has something to commit under its next owner.
    fronts.push(open_front(fleet, "pulse", 24)?);
    if strike.victim.starts_with("history") {
        report_takeover(fleet, strike.victim, &fences, &before).await?;
    }
    let mut worlds = Vec::new();
    for front in fronts {
        let outcome = front.load.await.context("the load panicked")??;
        println!("{}: {} purchases correct, {} steps repeated", front.world.namespace(), outcome.correct, outcome.repeated);
        worlds.push(front.world);
    }
    let stores = Stores::open(fleet).await?;
    let logs = audit(&stores, &worlds).await?;
    match strike.how {
        How::Kill => victim.restart(&[("HARVEST_CRASH_POINT", "")])?,
        How::Stop => victim.thaw()?,
    }
    // Whether it finds its place again or ends itself because it has lost everything, the fleet must go on.
    let late = open_front(fleet, "late", 8)?;
    late.load.await.context("the load panicked")??;
    if victim.is_running() {
        fleet.wait_one_ready(strike.victim).await?;
    }
    // Nothing that the victim still had in hand has changed what is closed.
    anyhow::ensure!(audit(&stores, &worlds).await? == logs, "a log has changed after its run had closed");
    audit(&stores, &[late.world]).await?;
    Ok(())
}

/// Adds tenants until the victim reaches its point; gives the shards as they were seen last before.
async fn wait_for_hit(
    fleet: &Arc<Fleet>,
    strike: Strike,
    victim: &Process,
    fences: &Fences,
    fronts: &mut Vec<Front>,
) -> anyhow::Result<BTreeMap<i32, ShardView>> {
    let mut seen = fences.shards().await?;
    for round in 0..MOST_WORLDS {
        let hit = hit(strike, victim, HIT / u32::try_from(MOST_WORLDS)?);
        tokio::pin!(hit);
        loop {
            let look = tokio::time::timeout(Duration::from_millis(30), &mut hit).await;
            match look {
                Ok(Ok(())) => return Ok(seen),
                Ok(Err(_)) => break,
                Err(_) => seen = fences.shards().await?,
            }
        }
        fronts.push(open_front(fleet, &format!("more-{round}"), 8)?);
    }
    anyhow::bail!("{} never reached {}", strike.victim, strike.point)
}

async fn hit(strike: Strike, victim: &Process, longest: Duration) -> anyhow::Result<()> {
    match strike.how {
        How::Kill => victim.wait(longest).await.map(|_| ()),
        How::Stop => victim.wait_frozen(longest).await,
    }
}

/// Waits until the shards of a dead or frozen owner commit under another one, and prints how long that took.
pub async fn report_takeover(fleet: &Fleet, victim: &str, fences: &Fences, before: &BTreeMap<i32, ShardView>) -> anyhow::Result<Duration> {
    let owner = |view: &ShardView| view.address.as_deref().and_then(|address| fleet.process_at(address));
    let lost: Vec<i32> = before.iter().filter(|(_, view)| owner(view).as_deref() == Some(victim)).map(|(shard, _)| *shard).collect();
    let (owned, committed) = fences.takeover(before, &lost, TAKEOVER).await?;
    println!(
        "takeover of {} shards of {victim}: {} ms until each had a new owner, {} ms until each had its commit",
        lost.len(),
        owned.as_millis(),
        committed.as_millis()
    );
    Ok(committed)
}

/// Every log of these tenants holds; what they are, to be compared later.
async fn audit(stores: &Stores, worlds: &[Arc<World>]) -> anyhow::Result<Vec<(String, usize)>> {
    let mut all = Vec::new();
    for world in worlds {
        let logs = world.audit(stores).await.with_context(|| format!("audit of {}", world.namespace()))?;
        all.extend(logs.iter().map(|log: &RunLog| (log.execution_id().to_string(), log.records.len())));
    }
    Ok(all)
}

/// A worker in the test process that runs workflow code only, so that activities go to the processes under test.
pub fn deciding_worker(world: &World) -> anyhow::Result<harvest_integration_tests::world::RunningWorker> {
    world.worker(WorkerConfig::default().with_max_concurrent_activities(0), samples::workflows(), Vec::new())
}

/// Waits until a process has stopped itself or ended.
pub async fn struck(process: &Process, how: How) -> anyhow::Result<()> {
    match how {
        How::Kill => holds("the process has ended", HIT, || !process.is_running()).await,
        How::Stop => process.wait_frozen(HIT).await,
    }
}
