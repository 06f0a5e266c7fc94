//! Child workflows.

use harvest_integration_tests::World;
use harvest_integration_tests::eventually;
use harvest_integration_tests::samples::note;
use harvest_integration_tests::world::SOON;
use harvest_sdk::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

#[workflow]
async fn worker_bee(ctx: &WorkflowContext, text: String) -> Result<String, HarvestError> {
    ctx.execute_activity(&note, text).await
}

#[workflow]
async fn black_sheep(_ctx: &WorkflowContext) -> Result<(), WorkflowFailure> {
    Err(WorkflowFailure::new("Lost", "over the hills"))
}

#[workflow]
async fn parent_of_two(ctx: &WorkflowContext) -> Result<(String, String), HarvestError> {
    let good = ctx.spawn_child_workflow(&worker_bee, "honey".to_owned());
    let bad = ctx.spawn_child_workflow(&black_sheep, ());
    let (good, bad) = harvest_sdk::join!(good, bad);
    let bad = match bad {
        Err(HarvestError::ChildFailed { error_type, message, .. }) => format!("{error_type}: {message}"),
        other => format!("{other:?}"),
    };
    Ok((good?, bad))
}

pub async fn results_and_failures_of_children_reach_the_parent(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![parent_of_two, worker_bee, black_sheep], activities![note])?;
    let handle = world.start(&parent_of_two, "family", ()).await?;
    assert_eq!(world.result(&handle).await?, ("honey".to_owned(), "Lost: over the hills".to_owned()));
    Ok(())
}

#[workflow]
async fn queen(ctx: &WorkflowContext, width: u32) -> Result<Vec<String>, HarvestError> {
    let children: Vec<_> = (0..width).map(|number| ctx.spawn_child_workflow(&worker_bee, number.to_string())).collect();
    futures::future::try_join_all(children).await
}

pub async fn children_on_every_shard_come_back(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![queen, worker_bee], activities![note])?;
    let handle = world.start(&queen, "hive", 24).await?;
    assert_eq!(world.result(&handle).await?, (0..24).map(|number| number.to_string()).collect::<Vec<_>>());
    let page = world.api().get("/workflows?workflow_name=worker_bee&page_size=100").await?;
    let runs = page.body["workflows"].as_array().cloned().unwrap_or_default();
    assert_eq!(runs.len(), 24, "{page:?}");
    assert!(runs.iter().all(|run| run["parent_execution_id"].as_str() == Some(handle.execution_id())));
    // The first four hexadecimal digits of an id are its slot.
    let slots: BTreeSet<String> = runs.iter().filter_map(|run| run["execution_id"].as_str()).map(|id| id.chars().take(4).collect()).collect();
    assert!(slots.len() > 12, "{slots:?}");
    Ok(())
}

#[workflow]
async fn orphan(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("word").await
}

#[workflow]
async fn short_lived(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.spawn_child_workflow_detached(&orphan, (), ChildOptions::new().workflow_id("the-orphan"))
}

pub async fn a_detached_child_outlives_its_parent(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![short_lived, orphan], activities![])?;
    let parent = world.start(&short_lived, "parent", ()).await?;
    assert_eq!(world.result(&parent).await?, "the-orphan");
    let child = world.client().handle(&orphan, "the-orphan");
    eventually("the detached child runs", SOON, || async {
        child.signal_once("word", "alone", "once").await?;
        Ok(Some(()))
    })
    .await?;
    assert_eq!(world.result(&child).await?, "alone");
    Ok(())
}

#[workflow]
async fn obedient(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.or_cancelled(ctx.receive_signal::<()>("never")).await
}

#[workflow]
async fn guardian(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.spawn_child_workflow_with_opts(&obedient, (), ChildOptions::new().workflow_id("ward")).await
}

pub async fn an_awaited_child_is_cancelled_with_its_parent(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![guardian, obedient], activities![])?;
    let parent = world.start(&guardian, "guardian", ()).await?;
    let child = world.client().handle(&obedient, "ward");
    eventually("the child runs", SOON, || async { Ok((child.describe().await?.state == "RUNNING").then_some(())) }).await?;
    parent.terminate("goodbye").await?;
    world.wait_for_state(&child, "CANCELLED").await?;
    Ok(())
}

#[workflow]
async fn unlucky(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    match ctx.spawn_child_workflow_with_opts(&orphan, (), ChildOptions::new().workflow_id("taken")).await {
        Err(HarvestError::ChildFailed { error_type, .. }) => Ok(error_type),
        other => other,
    }
}

pub async fn a_child_whose_key_is_taken_is_a_typed_failure(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![unlucky, orphan], activities![])?;
    let first = world.start(&orphan, "taken", ()).await?;
    let handle = world.start(&unlucky, "unlucky", ()).await?;
    assert_eq!(world.result(&handle).await?, "ChildAlreadyRunning");
    first.signal("word", "fine").await?;
    assert_eq!(world.result(&first).await?, "fine");
    Ok(())
}

#[workflow]
async fn fickle(ctx: &WorkflowContext, width: u32) -> Result<Vec<String>, HarvestError> {
    let children: Vec<_> = (0..width).map(|_| ctx.spawn_child_workflow(&obedient, ())).collect();
    ctx.timer("a moment", Duration::from_millis(1)).await?;
    children.iter().for_each(harvest_sdk::ChildFuture::cancel);
    let ended = futures::future::join_all(children).await.into_iter();
    Ok(ended.map(|ended| ended.err().map_or_else(String::new, |error| error.error_type().to_owned())).collect())
}

/// The wish to cancel follows the start closely: it must not overtake it.
pub async fn children_cancelled_right_after_their_start_are_cancelled(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![fickle, obedient], activities![])?;
    let handle = world.start(&fickle, "fickle", 40).await?;
    let ended: BTreeSet<String> = world.result(&handle).await?.into_iter().collect();
    assert_eq!(ended, BTreeSet::from(["ChildCancelled".to_owned()]));
    Ok(())
}
