//! Many cases on one fleet: each in a tenant of its own, all at once, each reported by name.

use crate::audit;
use crate::fleet::{Fleet, Plan, with_fleet};
use crate::store::Stores;
use crate::world::World;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use harvest_runtime::{Clock, SystemClock};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// The variable that runs only the cases whose name contains its value.
pub const ONLY_VARIABLE: &str = "HARVEST_CASE";

/// The longest one case may take.
const LONGEST: Duration = Duration::from_secs(120);
/// Runs of a failed case whose records are shown, and how many records of each.
const SHOWN_RUNS: usize = 4;
const SHOWN_RECORDS: usize = 25;
/// How many cases run at once: two cores.
const AT_ONCE: usize = 10;

/// One case: a name that is a sentence, and what to do.
pub struct Case {
    /// Module and function.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(Arc<World>) -> BoxFuture<'static, anyhow::Result<()>>,
}

/// Lists cases: `cases![activities::a_result_reaches_the_caller, ..]`. Each is `async fn(Arc<World>) -> anyhow::Result<()>`.
#[macro_export]
macro_rules! cases {
    ($($module:ident::$case:ident),* $(,)?) => {
        ::std::vec![$($crate::suite::Case { name: concat!(stringify!($module), "::", stringify!($case)), run: |world| ::std::boxed::Box::pin($module::$case(world)) }),*]
    };
}

/// Makes a test of a list of cases for every topology.
#[macro_export]
macro_rules! on_every_topology {
    ($cases:path) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn every_case_holds_on_harvest_dev() {
            $crate::suite::run($crate::Plan::new($crate::Topology::Dev, "dev"), $cases()).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn every_case_holds_on_five_processes() {
            $crate::suite::run($crate::Plan::new($crate::Topology::Single, "single"), $cases()).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn every_case_holds_on_two_of_each_service() {
            $crate::suite::run($crate::Plan::new($crate::Topology::Double, "double"), $cases()).await;
        }
    };
}

/// Runs the cases on one fleet, then audits what they have left in the store.
///
/// # Panics
/// When a case fails: this is the body of a test.
pub async fn run(plan: Plan, cases: Vec<Case>) {
    let only = std::env::var(ONLY_VARIABLE).unwrap_or_default();
    let cases: Vec<Case> = cases.into_iter().filter(|case| case.name.contains(&only)).collect();
    with_fleet(plan, |fleet| async move { run_on(&fleet, cases).await }).await;
}

async fn run_on(fleet: &Arc<Fleet>, cases: Vec<Case>) -> anyhow::Result<()> {
    let clock = SystemClock::new();
    let mut failures = Vec::new();
    let mut worlds = Vec::new();
    let mut running = stream::iter(cases)
        .map(|case| {
            let (fleet, clock) = (fleet.clone(), clock.clone());
            async move {
                let begin = clock.monotonic();
                let (world, result) = run_one(&fleet, &case).await;
                (case.name, world, result, clock.monotonic() - begin)
            }
        })
        .buffer_unordered(AT_ONCE);
    while let Some((name, world, result, took)) = running.next().await {
        match result {
            Ok(()) => println!("ok      {name}  {} ms", took.as_millis()),
            Err(error) => {
                println!("FAILED  {name}  {} ms: {error}", took.as_millis());
                failures.push(format!("{name}: {error}"));
            }
        }
        worlds.extend(world.map(|world| (name, world)));
    }
    drop(running);
    let stores = Stores::open(fleet).await?;
    let mut runs = 0;
    for (name, world) in worlds {
        match world.audit(&stores).await {
            Ok(logs) => runs += logs.len(),
            Err(error) => failures.push(format!("{name}: audit: {error:#}")),
        }
        if failures.iter().any(|failure| failure.starts_with(name)) {
            show_records(&stores, name, &world).await?;
        }
    }
    println!("{runs} runs audited");
    anyhow::ensure!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

/// The end of the record log of each run of a failed case.
async fn show_records(stores: &Stores, name: &str, world: &World) -> anyhow::Result<()> {
    for log in audit::logs(stores, world.namespace()).await?.iter().take(SHOWN_RUNS) {
        let row = &log.stored.row;
        println!("--- {name}: {} {} {:?}, {} records", row.workflow_type, row.workflow_id, row.mutable.status, log.records.len());
        let skipped = log.records.len().saturating_sub(SHOWN_RECORDS);
        for record in &log.records[skipped..] {
            let text: String = format!("{record:?}").chars().take(400).collect();
            println!("    {text}");
        }
        println!("    tasks {:?}, due {:?}", log.stored.tasks, log.stored.due_at);
    }
    Ok(())
}

async fn run_one(fleet: &Arc<Fleet>, case: &Case) -> (Option<Arc<World>>, Result<(), String>) {
    let namespace = case.name.replace("::", ".");
    let world = match World::new(fleet, &namespace) {
        Ok(world) => world,
        Err(error) => return (None, Err(format!("{error:#}"))),
    };
    let body = {
        let world = world.clone();
        let run = case.run;
        async move {
            run(world.clone()).await?;
            world.stop_workers().await
        }
    };
    let result = match tokio::time::timeout(LONGEST, harvest_runtime::spawn_owned("case", body)).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => Err(format!("{error:#}")),
        Ok(Err(panic)) if panic.is_panic() => Err(panic_text(panic.into_panic().as_ref())),
        Ok(Err(ended)) => Err(ended.to_string()),
        Err(_) => Err(format!("not done within {LONGEST:?}")),
    };
    (Some(world), result)
}

/// What a panic says.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without a text".to_owned())
}
