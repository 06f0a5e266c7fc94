//! Fleet limits.

use harvest_integration_tests::World;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

#[workflow]
async fn bounded(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.receive_signal("end").await
}

/// Far above what other cases on the fleet ask for.
const CEILING_SECS: u64 = 40_000_000;

pub async fn a_limit_that_no_shard_has_pending_holds_for_every_start(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![bounded], activities![])?;
    let asked = Duration::from_secs(CEILING_SECS * 2);
    let options = |key: &str| StartOptions::new(key).execution_timeout(asked);
    let before = world.start_with(&bounded, options("before"), ()).await?;
    assert_eq!(before.describe().await?.execution_timeout_ms, CEILING_SECS * 2_000);

    let body = serde_json::json!({"max_workflow_execution_timeout_secs": CEILING_SECS, "wait_secs": 10, "reason": "a test"});
    let changed = world.api().patch("/admin/limits", &body).await?;
    assert_eq!(changed.status.as_u16(), 200, "{changed:?}");
    assert_eq!(changed.body["pending"], serde_json::json!([]), "{changed:?}");
    assert_eq!(changed.body["acknowledged"].as_u64(), Some(u64::from(world.fleet().shards())), "{changed:?}");
    // With nothing pending it holds at once and everywhere: runs of many slots.
    let starts = (0..24).map(|number| world.start_with(&bounded, options(&format!("after-{number}")), ()));
    for handle in futures::future::try_join_all(starts).await? {
        assert_eq!(handle.describe().await?.execution_timeout_ms, CEILING_SECS * 1_000);
        handle.terminate("test over").await?;
    }
    let shown = world.api().get("/admin/limits").await?;
    assert_eq!(shown.body["limits"]["max_workflow_execution_timeout_secs"].as_u64(), Some(CEILING_SECS), "{shown:?}");

    let bad = world.api().patch("/admin/limits", &serde_json::json!({"max_workflow_execution_timeout_secs": -1})).await?;
    assert_eq!((bad.status.as_u16(), bad.text("field")), (400, "max_workflow_execution_timeout_secs"), "{bad:?}");

    let removed = world.api().patch("/admin/limits", &serde_json::json!({"max_workflow_execution_timeout_secs": null, "wait_secs": 10})).await?;
    assert_eq!(removed.body["pending"], serde_json::json!([]), "{removed:?}");
    let free = world.start_with(&bounded, options("free"), ()).await?;
    assert_eq!(free.describe().await?.execution_timeout_ms, CEILING_SECS * 2_000);
    for handle in [before, free] {
        handle.terminate("test over").await?;
    }
    Ok(())
}
