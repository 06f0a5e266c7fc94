//! An owner that sleeps through its own succession: calls that reach it meanwhile are answered after it wakes, and must not be answered from
//! what it remembers.

use crate::sleeper::Sleeper;
use crate::strike::TAKEOVER;
use harvest_ids::ExecutionId;
use harvest_integration_tests::eventually;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::store::{Fences, Stores};
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_proto::v1;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

#[workflow]
async fn waiting(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("word").await
}

/// A run on a shard of this process.
async fn run_of(fleet: &Fleet, world: &World, owner: &str) -> anyhow::Result<(harvest_sdk::WorkflowHandle<String>, u32)> {
    let (stores, fences) = (Stores::open(fleet).await?, Fences::open(fleet).await?);
    for number in 0..64 {
        let handle = world.start(&waiting, &format!("run-{number}"), ()).await?;
        let id: ExecutionId = handle.execution_id().parse()?;
        let shard = stores.shard_of(id)?.0;
        if fences.owners(fleet).await?.get(&i32::try_from(shard)?).is_some_and(|found| found == owner) {
            return Ok((handle, shard));
        }
    }
    anyhow::bail!("no shard belongs to {owner}")
}

/// A new run on this shard.
async fn run_on(fleet: &Fleet, world: &World, shard: u32) -> anyhow::Result<(harvest_sdk::WorkflowHandle<String>, ExecutionId)> {
    let stores = Stores::open(fleet).await?;
    for number in 0..64 {
        let handle = world.start(&waiting, &format!("news-{number}"), ()).await?;
        let id: ExecutionId = handle.execution_id().parse()?;
        if stores.shard_of(id)?.0 == shard {
            return Ok((handle, id));
        }
    }
    anyhow::bail!("no run is on shard {shard}")
}

async fn sleep_through(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "frozen")?;
    world.serve(workflows![waiting], activities![])?;
    let fences = Fences::open(&fleet).await?;
    eventually("both own shards", Duration::from_secs(30), || async {
        let owners = fences.owners(&fleet).await?;
        Ok(["history-1", "history-2"].iter().all(|name| owners.values().filter(|owner| owner == name).count() == 2).then_some(()))
    })
    .await?;
    let (handle, shard) = run_of(&fleet, &world, "history-1").await?;
    let sleeper = fleet.process("history-1")?;
    let mut asking = Sleeper::connect(&fleet, "history-1", shard).await?;
    let before = fences.shards().await?;
    sleeper.freeze()?;
    let reference = v1::WorkflowRef { namespace: "frozen".to_owned(), execution_id: handle.execution_id().to_owned(), ..v1::WorkflowRef::default() };
    asking.ask(reference);
    handle.signal("word", "right").await?;
    assert_eq!(world.result(&handle).await?, "right");
    fences.takeover(&before, &[i32::try_from(shard)?], TAKEOVER).await?;
    // A run that the sleeper has never heard of.
    let (news, run) = run_on(&fleet, &world, shard).await?;
    let reference = v1::WorkflowRef { namespace: "frozen".to_owned(), execution_id: news.execution_id().to_owned(), ..v1::WorkflowRef::default() };
    asking.ask_about_news(reference, run);
    sleeper.thaw()?;
    asking.must_be_refused(&fences, before[&i32::try_from(shard)?].epoch).await?;
    assert!(world.list("workflow_id=started-late").await?.is_empty());
    let signals = world.variants(&handle).await?.iter().filter(|variant| *variant == "SignalReceived").count();
    assert_eq!(signals, 1);
    // The run goes on; the sleeper has neither cancelled it, nor ended it for an owner that has never heard of it.
    news.signal("word", "news").await?;
    if !world.variants(&news).await?.contains(&"WorkflowCancelRequested".to_owned()) {
        assert_eq!(world.result(&news).await?, "news");
    }
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_slept_through_its_succession_answers_nothing_from_memory() {
    with_fleet(Plan::new(Topology::Single, "sleeper").copies("history", 2), sleep_through).await;
}
