//! Durable timers.

use harvest_integration_tests::World;
use harvest_integration_tests::eventually;
use harvest_integration_tests::world::SOON;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[workflow]
async fn sleeper(ctx: &WorkflowContext, millis: u64) -> Result<u128, HarvestError> {
    let before = ctx.now();
    ctx.timer("nap", Duration::from_millis(millis)).await?;
    Ok(ctx.now().duration_since(before).unwrap_or_default().as_millis())
}

pub async fn a_timer_fires_after_its_time_and_not_before(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![sleeper], activities![])?;
    let handle = world.start(&sleeper, "nap", 700).await?;
    let slept = world.result(&handle).await?;
    assert!(slept >= 700, "{slept} ms");
    assert!(slept < 10_000, "{slept} ms");
    Ok(())
}

#[workflow]
async fn changes_its_mind(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    let timer = ctx.start_timer("long", Duration::from_millis(4_000));
    ctx.receive_signal::<()>("stop").await?;
    timer.cancel();
    let ended = timer.await;
    // A cancelled timer's id is free again.
    ctx.timer("long", Duration::from_millis(4_200)).await?;
    Ok(format!("{ended:?}"))
}

pub async fn a_cancelled_timer_never_fires(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![changes_its_mind], activities![])?;
    let handle = world.start(&changes_its_mind, "stopped", ()).await?;
    // Started and cancelled within one workflow task it would leave no trace at all.
    eventually("the timer is started", SOON, || async { Ok(world.variants(&handle).await?.contains(&"TimerStarted".to_owned()).then_some(())) }).await?;
    handle.signal("stop", ()).await?;
    let ended = world.result(&handle).await?;
    assert!(ended.contains("Cancelled"), "{ended}");
    let variants = world.variants(&handle).await?;
    let count = |name: &str| variants.iter().filter(|variant| *variant == name).count();
    assert_eq!((count("TimerStarted"), count("TimerCancelled"), count("TimerFired")), (2, 1, 1), "{variants:?}");
    Ok(())
}

#[workflow]
async fn races(ctx: &WorkflowContext) -> Result<Vec<String>, HarvestError> {
    let mut order = Vec::new();
    let mut third = ctx.start_timer("third", Duration::from_millis(500));
    let mut first = ctx.start_timer("first", Duration::from_millis(150));
    let mut second = ctx.start_timer("second", Duration::from_millis(300));
    for _ in 0..3 {
        harvest_sdk::select! {
            fired = third => { fired?; order.push("third".to_owned()); }
            fired = first => { fired?; order.push("first".to_owned()); }
            fired = second => { fired?; order.push("second".to_owned()); }
        }
    }
    let past = ctx.now() - Duration::from_secs(5);
    ctx.sleep_until("past", past.max(SystemTime::UNIX_EPOCH)).await?;
    Ok(order)
}

pub async fn timers_fire_in_the_order_of_their_deadlines(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![races], activities![])?;
    let handle = world.start(&races, "race", ()).await?;
    assert_eq!(world.result(&handle).await?, ["first", "second", "third"]);
    Ok(())
}
