//! Runs are paused and go on.

use harvest_integration_tests::World;
use harvest_integration_tests::samples::note;
use harvest_proto::v1::event::Kind;
use harvest_sdk::prelude::*;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[workflow]
pub(super) async fn waits(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("end").await
}

/// So many milliseconds go by.
#[workflow]
pub(super) async fn nap(ctx: &WorkflowContext, millis: u64) -> Result<(), HarvestError> {
    ctx.timer("nap", Duration::from_millis(millis)).await
}

#[workflow]
async fn notes_what_it_is_told(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    let text: String = ctx.receive_signal("text").await?;
    ctx.execute_activity(&note, text).await
}

#[workflow(chain_execution_timeout = "1s")]
async fn capped(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("end").await
}

pub async fn a_paused_run_does_nothing_keeps_what_comes_and_goes_on(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![notes_what_it_is_told, nap], activities![note])?;
    let run = world.start(&notes_what_it_is_told, "parked", ()).await?;
    run.pause("audit").await?;
    let shown = run.describe().await?;
    assert_eq!((shown.state.as_str(), shown.pause_reason.as_str()), ("PAUSED", "audit"));
    assert_eq!(shown.paused_until_ms - shown.paused_at_ms, 24 * 3_600_000);
    assert_eq!(world.list("state=PAUSED").await?, ["parked"]);
    assert_eq!(world.list("state=SUSPENDED").await?, ["parked"]);
    run.signal("text", "hello").await?;
    let napped = world.start(&nap, "meanwhile", 700).await?;
    world.result(&napped).await?;
    assert!(world.calls_of("parked").is_empty(), "no worker was given anything");
    assert_eq!(world.list("state=RUNNING").await?, Vec::<String>::new());
    run.resume().await?;
    assert_eq!(world.result(&run).await?, "hello");
    assert_eq!(world.calls_of("parked").len(), 1);
    let told = world.variants(&run).await?;
    assert!(told.iter().all(|kind| !kind.contains("aus")), "no event tells of it: {told:?}");
    Ok(())
}

pub async fn a_pause_ends_by_itself_and_another_start_finds_the_paused_run(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![waits], activities![])?;
    let run = world.start(&waits, "short", ()).await?;
    run.pause_for(Duration::from_millis(600), "a moment").await?;
    let again = world.start(&waits, "short", ()).await?;
    assert_eq!((again.started_fresh(), again.execution_id()), (false, run.execution_id()), "it keeps its business key");
    run.signal("end", "went on").await?;
    assert_eq!(world.result(&run).await?, "went on");
    Ok(())
}

pub async fn pausing_over_http_says_what_changed_and_what_is_allowed(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![waits], activities![])?;
    let run = world.start(&waits, "http", ()).await?;
    let path = "/workflows/by-id/waits/http";
    let paused = world.api().post(&format!("{path}/pause"), &json!({"reason": "audit", "longest_secs": 60})).await?;
    assert_eq!((paused.status.as_u16(), &paused.body["changed"]), (200, &json!(true)), "{paused:?}");
    let again = world.api().post(&format!("{path}/pause"), &json!({})).await?;
    assert_eq!((again.status.as_u16(), &again.body["changed"]), (200, &json!(false)), "{again:?}");
    let shown = world.api().get(path).await?.body;
    assert_eq!((&shown["state"], &shown["pause_reason"]), (&json!("PAUSED"), &json!("audit")), "{shown}");
    let resumed = world.api().post(&format!("{path}/resume"), &json!({})).await?;
    assert_eq!((resumed.status.as_u16(), &resumed.body["changed"]), (200, &json!(true)), "{resumed:?}");
    let too_long = world.api().post(&format!("{path}/pause"), &json!({"longest_secs": 90_000})).await?;
    assert!(too_long.status.is_client_error() && too_long.body["error"].as_str().is_some_and(|text| text.contains("max_workflow_pause")), "{too_long:?}");
    run.terminate("test over").await?;
    let closed = world.api().post(&format!("{path}/pause"), &json!({})).await?;
    assert_eq!((closed.status.as_u16(), &closed.body["reason"]), (409, &json!("WORKFLOW_CLOSED")), "{closed:?}");
    let missing = world.api().post("/workflows/by-id/waits/nobody/resume", &json!({})).await?;
    assert_eq!(missing.status.as_u16(), 404, "{missing:?}");
    Ok(())
}

pub async fn reference_09_a_chain_whose_time_passed_in_a_pause_ends_when_it_goes_on(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![capped, nap], activities![])?;
    let run = world.start(&capped, "capped", ()).await?;
    run.pause("a long look").await?;
    let napped = world.start(&nap, "past-it", 1_500).await?;
    world.result(&napped).await?;
    assert_eq!(run.describe().await?.state, "PAUSED", "the chain's time is up, and it is left alone");
    run.resume().await?;
    world.wait_for_state(&run, "TIMED_OUT").await?;
    let history = run.history().await?;
    let (first, last) = (history.first().map(|event| event.kind.clone()), history.last().map(|event| event.kind.clone()));
    let Some(Some(Kind::WorkflowStarted(started))) = first else { anyhow::bail!("{first:?}") };
    assert_eq!(started.chain_deadline_ms, history.first().map(|event| event.at_ms + 1_000), "not put off");
    assert!(matches!(&last, Some(Some(Kind::WorkflowExecutionTimedOut(it))) if it.timeout == "Chain"), "{last:?}");
    Ok(())
}
