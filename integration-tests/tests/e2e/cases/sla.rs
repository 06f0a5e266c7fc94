//! The soft limit of a run.

use super::pause::{nap, waits};
use harvest_integration_tests::World;
use harvest_integration_tests::eventually::eventually;
use harvest_integration_tests::world::SOON;
use harvest_proto::v1::WorkflowInfo;
use harvest_sdk::WorkflowHandle;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

#[workflow(sla = "300ms")]
async fn slow(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("end").await
}

#[workflow(sla = "10s", execution_timeout = "4s")]
async fn clamped(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("end").await
}

/// Waits until the run was found to be late.
pub(super) async fn late<R>(handle: &WorkflowHandle<R>) -> anyhow::Result<WorkflowInfo> {
    eventually("the run is late", SOON, || async {
        let info = handle.describe().await?;
        Ok((info.sla_breached_at_ms != 0).then_some(info))
    })
    .await
}

pub async fn reference_06_a_late_run_is_counted_once_and_completes_as_ever(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![slow], activities![])?;
    let run = world.start(&slow, "slow", ()).await?;
    let punctual = world.start_with(&slow, StartOptions::new("punctual").sla(Duration::from_secs(3_600)), ()).await?;
    let found = late(&run).await?;
    assert_eq!((found.state.as_str(), found.sla_ms), ("RUNNING", 300));
    assert!(found.sla_breached_at_ms >= found.sla_deadline_at_ms && found.sla_deadline_at_ms == found.started_at_ms + 300, "{found:?}");
    assert_eq!(world.list("sla_breached=true").await?, ["slow"]);
    assert_eq!(world.list("sla_breached=false").await?, ["punctual"]);
    run.signal("end", "done").await?;
    assert_eq!(world.result(&run).await?, "done");
    let after = run.describe().await?;
    assert_eq!((after.state.as_str(), after.sla_breached_at_ms), ("COMPLETED", found.sla_breached_at_ms), "one time, which never changes");
    let known = ["WorkflowStarted", "WorkflowTaskCompleted", "SignalReceived", "WorkflowCompleted"];
    let told = world.variants(&run).await?;
    assert!(told.iter().all(|kind| known.contains(&kind.as_str())), "no event tells of it: {told:?}");
    assert_eq!(world.list("sla_breached=true&state=COMPLETED").await?, ["slow"]);
    let labels = "{queue=\"default\",workflow=\"slow\"}";
    assert_eq!(world.fleet().counted(&format!("harvest_workflow_sla_breached_total{labels}")).await?, 1.0);
    punctual.signal("end", "in time").await?;
    assert_eq!(world.result(&punctual).await?, "in time");
    assert_eq!(punctual.describe().await?.sla_breached_at_ms, 0);
    Ok(())
}

pub async fn reference_07_an_sla_is_never_beyond_the_timeout_and_a_start_may_bring_its_own(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![clamped], activities![])?;
    let declared = world.start(&clamped, "declared", ()).await?;
    assert_eq!(declared.describe().await?.sla_ms, 4_000);
    let own = world.start_with(&clamped, StartOptions::new("own").sla(Duration::from_millis(1_500)), ()).await?;
    assert_eq!(own.describe().await?.sla_ms, 1_500);
    let started = world.api().post("/workflows/clamped/start", &serde_json::json!({"workflow_id": "http", "sla_secs": 2.5})).await?;
    assert!(started.status.is_success(), "{started:?}");
    let shown = world.api().get("/workflows/by-id/clamped/http").await?.body;
    assert_eq!((shown["sla_ms"].as_u64(), shown["sla_breached"].as_bool()), (Some(2_500), Some(false)), "{shown}");
    for handle in [declared, own, world.client().handle(&clamped, "http")] {
        handle.terminate("test over").await?;
    }
    Ok(())
}

pub async fn reference_08_a_pause_puts_the_sla_off_by_its_length(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![waits, nap], activities![])?;
    let run = world.start_with(&waits, StartOptions::new("parked").sla(Duration::from_millis(1_000)), ()).await?;
    run.pause("parked").await?;
    let parked = run.describe().await?;
    let napped = world.start(&nap, "past-it", 1_500).await?;
    world.result(&napped).await?;
    assert_eq!(run.describe().await?.sla_breached_at_ms, 0, "its clock stands still");
    run.resume().await?;
    let resumed = run.describe().await?;
    assert!(resumed.sla_deadline_at_ms >= parked.sla_deadline_at_ms + 1_500, "{parked:?} {resumed:?}");
    let found = late(&run).await?;
    assert!(found.sla_breached_at_ms >= resumed.sla_deadline_at_ms, "{found:?}");
    run.terminate("test over").await?;
    Ok(())
}
