//! The lifetime of a chain.

use harvest_integration_tests::World;
use harvest_proto::v1::WorkflowStarted;
use harvest_proto::v1::event::Kind;
use harvest_sdk::WorkflowHandle;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Goes on for ever, a run at a time; none of them is long.
#[workflow(chain_execution_timeout = "2s", execution_timeout = "1h")]
async fn restless(ctx: &WorkflowContext, number: u64) -> Result<(), HarvestError> {
    ctx.timer("pause", Duration::from_millis(100)).await?;
    ctx.continue_as_new(number + 1).await?;
    Ok(())
}

async fn started<R>(handle: &WorkflowHandle<R>) -> anyhow::Result<(WorkflowStarted, i64, Kind, i64)> {
    let history = handle.history().await?;
    let (first, last) = (history.first().cloned(), history.last().cloned());
    match (first.map(|event| (event.kind, event.at_ms)), last.map(|event| (event.kind, event.at_ms))) {
        (Some((Some(Kind::WorkflowStarted(started)), at)), Some((Some(last), last_at))) => Ok((started, at, last, last_at)),
        other => anyhow::bail!("{other:?}"),
    }
}

pub async fn reference_10_a_chain_ends_at_the_instant_that_its_first_run_has_set(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![restless], activities![])?;
    let first = world.start(&restless, "restless", 0).await?;
    let newest = world.client().handle(&restless, "restless");
    world.wait_for_state(&newest, "TIMED_OUT").await?;
    let (begin, began, _, _) = started(&first).await?;
    let (end, _, last, ended) = started(&newest).await?;
    assert_eq!(end.first_execution_id, begin.execution_id);
    assert_ne!(end.execution_id, begin.execution_id, "it went on for a while");
    assert_eq!((begin.chain_execution_timeout_ms, begin.chain_deadline_ms), (2_000, Some(began + 2_000)));
    assert_eq!((end.chain_execution_timeout_ms, end.chain_deadline_ms), (2_000, Some(began + 2_000)), "carried unchanged");
    assert!(matches!(&last, Kind::WorkflowExecutionTimedOut(it) if it.timeout == "Chain"), "{last:?}");
    assert!(ended >= began + 2_000, "not before: {} ms", ended - began);
    // Counted once, and not as the timeout of a run.
    let labels = "{queue=\"default\",workflow=\"restless\"}";
    assert_eq!(world.fleet().counted(&format!("harvest_workflow_chain_timeout_total{labels}")).await?, 1.0);
    assert_eq!(world.fleet().counted(&format!("harvest_workflow_timeout_total{labels}")).await?, 0.0);
    Ok(())
}

#[workflow]
async fn waits(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.receive_signal("end").await
}

#[workflow(chain_execution_timeout = "1h")]
async fn waits_for_an_hour(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.receive_signal("end").await
}

/// Declares nothing, and neither does its child.
#[workflow]
async fn has_a_child(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.spawn_child_workflow_with_opts(&waits, (), ChildOptions::new().workflow_id("uncapped")).await
}

/// Far above what other cases on the fleet need.
const CEILING_SECS: u64 = 50_000_000;

pub async fn reference_11_the_ceiling_of_chains_is_the_default_of_each_but_not_of_a_child(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![has_a_child, waits, waits_for_an_hour], activities![])?;
    let body = serde_json::json!({"max_workflow_chain_timeout_secs": CEILING_SECS, "wait_secs": 10, "reason": "a test"});
    let changed = world.api().patch("/admin/limits", &body).await?;
    assert_eq!((changed.status.as_u16(), &changed.body["pending"]), (200, &serde_json::json!([])), "{changed:?}");
    assert_eq!(changed.body["limits"]["max_workflow_chain_timeout_secs"].as_u64(), Some(CEILING_SECS), "{changed:?}");

    let undeclared = world.start(&has_a_child, "undeclared", ()).await?;
    let declared = world.start(&waits_for_an_hour, "declared", ()).await?;
    assert_eq!(started(&undeclared).await?.0.chain_execution_timeout_ms, CEILING_SECS * 1_000);
    assert_eq!(started(&declared).await?.0.chain_execution_timeout_ms, 3_600_000, "below the ceiling");
    let child = world.client().handle(&waits, "uncapped");
    world.wait_for_state(&child, "RUNNING").await?;
    assert_eq!(started(&child).await?.0.chain_deadline_ms, None, "a child stays uncapped");

    let removed = world.api().patch("/admin/limits", &serde_json::json!({"max_workflow_chain_timeout_secs": null, "wait_secs": 10})).await?;
    assert_eq!(removed.body["pending"], serde_json::json!([]), "{removed:?}");
    let free = world.start(&waits, "free", ()).await?;
    assert_eq!(started(&free).await?.0.chain_deadline_ms, None);
    assert!(started(&undeclared).await?.0.chain_deadline_ms.is_some(), "what is under way keeps its own");
    for handle in [undeclared, declared, free] {
        handle.terminate("test over").await?;
    }
    Ok(())
}
