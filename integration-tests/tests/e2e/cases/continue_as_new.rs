//! Chains of runs.

use harvest_integration_tests::World;
use harvest_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Progress {
    left: u32,
    taken: Vec<String>,
}

/// Takes one signal per run.
#[workflow]
async fn relay(ctx: &WorkflowContext, mut progress: Progress) -> Result<Vec<String>, HarvestError> {
    if progress.left == 0 {
        return Ok(progress.taken);
    }
    progress.taken.push(ctx.receive_signal("item").await?);
    progress.left -= 1;
    ctx.continue_as_new(progress).await?;
    Ok(Vec::new())
}

pub async fn unread_signals_travel_along_a_chain(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![relay], activities![])?;
    let handle = world.start(&relay, "chain", Progress { left: 12, taken: Vec::new() }).await?;
    // Sent while runs continue under them: each must count once and in order, to whichever run it came.
    for number in 0..12 {
        handle.signal_once("item", number.to_string(), &format!("item-{number}")).await?;
        handle.signal_once("item", number.to_string(), &format!("item-{number}")).await?;
    }
    assert_eq!(world.result(&handle).await?, (0..12).map(|number| number.to_string()).collect::<Vec<_>>());
    let first = handle.describe().await?;
    assert_eq!(first.state, "CONTINUED_AS_NEW");
    assert!(!first.continued_as.is_empty());
    let newest = world.client().handle(&relay, "chain").describe().await?;
    assert_eq!((newest.state.as_str(), newest.first_execution_id.as_str()), ("COMPLETED", handle.execution_id()));
    Ok(())
}

#[workflow]
async fn caterpillar(ctx: &WorkflowContext, name: String) -> Result<String, HarvestError> {
    ctx.continue_as_new_as(&butterfly, format!("{name} with wings")).await?;
    Ok(String::new())
}

#[workflow]
async fn butterfly(_ctx: &WorkflowContext, name: String) -> Result<String, HarvestError> {
    Ok(name)
}

pub async fn a_chain_may_change_its_type(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![caterpillar, butterfly], activities![])?;
    let handle = world.start(&caterpillar, "insect", "vanessa".to_owned()).await?;
    assert_eq!(world.result(&handle).await?, "vanessa with wings");
    let newest = world.client().handle(&butterfly, "insect").describe().await?;
    assert_eq!(newest.first_execution_id, handle.execution_id());
    Ok(())
}

/// Works in short turns, and asks before each whether to go on in a new run.
#[workflow(execution_timeout = "4s")]
async fn entity(ctx: &WorkflowContext, runs_left: u32) -> Result<String, HarvestError> {
    loop {
        if ctx.should_continue_as_new() {
            if runs_left == 0 {
                return Ok("old and well".to_owned());
            }
            ctx.continue_as_new(runs_left - 1).await?;
        }
        ctx.timer("turn", Duration::from_millis(400)).await?;
    }
}

pub async fn reference_12_an_entity_continues_before_its_timeout_ends_it(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![entity], activities![])?;
    let handle = world.start(&entity, "entity", 1).await?;
    assert_eq!(world.result(&handle).await?, "old and well");
    let first = handle.describe().await?;
    assert_eq!(first.state, "CONTINUED_AS_NEW");
    let (lived, turns) = (first.closed_at_ms - first.started_at_ms, world.variants(&handle).await?.iter().filter(|kind| *kind == "TimerFired").count());
    assert!((3_200..4_000).contains(&lived), "four fifths of its timeout are 3.2 s: {lived} ms");
    let readings = handle.history().await?.into_iter().filter(|event| match &event.kind {
        Some(harvest_proto::v1::event::Kind::SideEffectRecorded(it)) => it.name == "__harvest_continue_as_new",
        _ => false,
    });
    assert_eq!(readings.count(), turns + 1, "one reading of the clock for each question");
    Ok(())
}
