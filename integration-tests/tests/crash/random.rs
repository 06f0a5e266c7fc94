//! Processes die and freeze at random under load.

use crate::sleeper::Sleeper;
use crate::strike::{TAKEOVER, deciding_worker};
use anyhow::Context as _;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::load::{Load, Outcome};
use harvest_integration_tests::process::Process;
use harvest_integration_tests::samples;
use harvest_integration_tests::store::{Fences, ShardView, Stores};
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_proto::v1;
use harvest_runtime::{Clock, IdSource, OwnedTask, SeededIds, SystemClock, SystemIds};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The tenant of the load.
const TENANT: &str = "soak";
/// How long the load may make no progress.
const LONGEST: Duration = Duration::from_secs(180);

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_die_and_freeze_at_random() {
    with_fleet(Plan::new(Topology::Double, "random"), soak).await;
}

/// A fleet under injuries.
struct Ward {
    fleet: Arc<Fleet>,
    fences: Fences,
    workers: [Process; 2],
    load: OwnedTask<anyhow::Result<Outcome>>,
    ended: Arc<AtomicUsize>,
    runs: usize,
    slowest: Duration,
}

async fn soak(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let runs = usize::try_from(number("HARVEST_SOAK_RUNS", 60))?;
    let injuries = usize::try_from(number("HARVEST_SOAK_KILLS", 6))?;
    let seed = number("HARVEST_SOAK_SEED", SystemIds.random_u64());
    println!("{runs} purchases, {injuries} injuries, HARVEST_SOAK_SEED={seed}");
    let random = SeededIds::new(seed);

    let world = World::new(&fleet, TENANT)?;
    let _deciding = deciding_worker(&world)?;
    let workers = [fleet.start_worker("worker-1", TENANT, "default", &[])?, fleet.start_worker("worker-2", TENANT, "default", &[])?];
    let load = Load { longest: Duration::from_secs(180), ..Load::new("p", runs) };
    let (ended, in_load) = (load.ended.clone(), world.clone());
    let load = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
    let mut ward = Ward { fences: Fences::open(&fleet).await?, fleet, workers, load, ended, runs, slowest: Duration::ZERO };

    let names = ward.fleet.process_names();
    for injury in 1..=injuries {
        ward.wait_for(injury * runs / (injuries + 1)).await?;
        let choice = usize::try_from(random.random_u64() % u64::try_from(names.len() + ward.workers.len())?)?;
        // Every third is frozen, owners more often: it is they who could answer from memory.
        let history = names.get(choice).is_some_and(|name| name.starts_with("history"));
        let freeze = random.random_u64() % 6 < if history { 3 } else { 2 };
        match (names.get(choice), freeze) {
            (Some(name), false) => ward.kill_and_restart(name).await?,
            (Some(name), true) if history => ward.freeze_owner(name).await?,
            (Some(name), true) => ward.freeze(ward.fleet.process(name)?).await?,
            (None, false) => restart_worker(&ward.workers[choice - names.len()]).await?,
            (None, true) => ward.freeze(&ward.workers[choice - names.len()]).await?,
        }
    }
    let outcome = ward.load.await.context("the load panicked")??;
    println!("{} purchases correct, {} steps repeated, slowest takeover {} ms", outcome.correct, outcome.repeated, ward.slowest.as_millis());
    ward.fleet.wait_ready().await?;
    world.audit(&Stores::open(&ward.fleet).await?).await?;
    Ok(())
}

async fn restart_worker(worker: &Process) -> anyhow::Result<()> {
    println!("kill {}", worker.name());
    worker.kill9().await?;
    worker.restart(&[])
}

impl Ward {
    fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }

    /// Waits until so many purchases have ended.
    async fn wait_for(&self, enough: usize) -> anyhow::Result<()> {
        holds(format!("{enough} purchases have ended"), LONGEST, || self.ended() >= enough || self.load.is_finished()).await?;
        println!("{} of {} purchases have ended", self.ended(), self.runs);
        Ok(())
    }

    /// The shards of a process, by their leases.
    fn shards_of(&self, name: &str, shards: &BTreeMap<i32, ShardView>) -> Vec<i32> {
        let owner = |view: &ShardView| view.address.as_deref().and_then(|address| self.fleet.process_at(address));
        shards.iter().filter(|(_, view)| owner(view).as_deref() == Some(name)).map(|(shard, _)| *shard).collect()
    }

    /// Waits until others have raised the epochs of these shards.
    async fn taken_over(&mut self, lost: &[i32], before: &BTreeMap<i32, ShardView>) -> anyhow::Result<()> {
        let clock = SystemClock::new();
        let begin = clock.monotonic();
        harvest_integration_tests::eventually("others have the owner's shards", TAKEOVER, || async {
            let now = self.fences.shards().await?;
            Ok(lost.iter().all(|shard| now[shard].epoch > before[shard].epoch).then_some(()))
        })
        .await?;
        let took = clock.monotonic() - begin;
        println!("{} shards have other owners after {} ms", lost.len(), took.as_millis());
        self.slowest = self.slowest.max(took);
        Ok(())
    }

    /// An owner is started again only when others have its shards.
    async fn kill_and_restart(&mut self, name: &str) -> anyhow::Result<()> {
        println!("kill {name}");
        let fleet = self.fleet.clone();
        let process = fleet.process(name)?;
        let before = self.fences.shards().await?;
        process.kill9().await?;
        if name.starts_with("history") {
            self.taken_over(&self.shards_of(name, &before), &before).await?;
        }
        process.restart(&[])?;
        fleet.wait_one_ready(name).await
    }

    /// An owner sleeps through its own succession, wherever it was. What it is asked meanwhile it must not answer.
    async fn freeze_owner(&mut self, name: &str) -> anyhow::Result<()> {
        println!("freeze {name}");
        let fleet = self.fleet.clone();
        let process = fleet.process(name)?;
        let mut shards = self.fences.shards().await?;
        let run = self.fences.run_on(TENANT, &self.shards_of(name, &shards)).await?;
        let mut asking = match &run {
            Some((shard, _)) => Some(Sleeper::connect(&fleet, name, u32::try_from(*shard)?).await?),
            None => None,
        };
        process.freeze()?;
        // Nothing more is committed by it, so that what is seen now is what it leaves.
        shards = self.fences.shards().await?;
        let mut epoch = 0;
        if let (Some(asking), Some((shard, execution_id))) = (&mut asking, run) {
            epoch = shards[&shard].epoch;
            asking.ask(v1::WorkflowRef { namespace: TENANT.to_owned(), execution_id, ..v1::WorkflowRef::default() });
        }
        self.taken_over(&self.shards_of(name, &shards), &shards).await?;
        process.thaw()?;
        if let Some(asking) = asking {
            asking.must_be_refused(&self.fences, epoch).await?;
        }
        fleet.wait_one_ready(name).await
    }

    /// Any other process sleeps while the rest goes on without it.
    async fn freeze(&self, process: &Process) -> anyhow::Result<()> {
        println!("freeze {}", process.name());
        process.freeze()?;
        let enough = self.ended() + 3;
        let gone_on = holds("others go on", LONGEST, || self.ended() >= enough || self.load.is_finished()).await;
        process.thaw()?;
        gone_on
    }
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
