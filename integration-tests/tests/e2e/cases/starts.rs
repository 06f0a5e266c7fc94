//! Starts.

use harvest_integration_tests::World;
use harvest_integration_tests::samples::echo;
use harvest_sdk::prelude::*;
use harvest_sdk::{ClientError, ConflictPolicy};
use std::collections::BTreeSet;
use std::sync::Arc;

#[workflow]
async fn patient(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("word").await
}

pub async fn a_second_start_of_an_open_run_finds_it(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![patient], activities![])?;
    let first = world.start(&patient, "same", ()).await?;
    assert!(first.started_fresh());
    let second = world.start(&patient, "same", ()).await?;
    assert!(!second.started_fresh());
    assert_eq!(second.execution_id(), first.execution_id());
    let refused = world.client().start(&patient, StartOptions::new("same").conflict_policy(ConflictPolicy::Fail), ()).await;
    assert!(matches!(refused, Err(ClientError::AlreadyExists(_))), "{:?}", refused.err());
    let api = world.api();
    let found = api.post("/workflows/patient/start", &serde_json::json!({"workflow_id": "same"})).await?;
    assert_eq!(
        (found.status.as_u16(), found.body["started_fresh"].as_bool(), found.text("execution_id")),
        (200, Some(false), first.execution_id()),
        "{found:?}"
    );
    let conflict = api.post("/workflows/patient/start", &serde_json::json!({"workflow_id": "same", "conflict_policy": "fail"})).await?;
    assert_eq!((conflict.status.as_u16(), conflict.text("reason")), (409, "ALREADY_RUNNING"), "{conflict:?}");
    first.signal("word", "done").await?;
    assert_eq!(world.result(&first).await?, "done");
    // A closed run is found too; a repeated request id repeats the answer that it had.
    let options = StartOptions::new("repeat").request_id("r-1");
    let run = world.start_with(&patient, options.clone(), ()).await?;
    run.signal("word", "once").await?;
    assert_eq!(world.result(&run).await?, "once");
    let repeated = world.client().start(&patient, options, ()).await?;
    assert_eq!((repeated.execution_id(), repeated.started_fresh()), (run.execution_id(), true));
    let found = world.start(&patient, "repeat", ()).await?;
    assert_eq!((found.execution_id(), found.started_fresh()), (run.execution_id(), false));
    Ok(())
}

pub async fn a_start_on_a_queue_that_nobody_serves_warns_and_waits(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![echo], activities![])?;
    world.result(&world.start(&echo, "first", "known".to_owned()).await?).await?;
    let body = serde_json::json!({"workflow_id": "waiting", "queue": "island", "input": "later"});
    let started = world.api().post("/workflows/echo/start", &body).await?;
    assert_eq!(started.status.as_u16(), 201, "{started:?}");
    let warnings = started.body["warnings"].as_array().cloned().unwrap_or_default();
    assert!(warnings.iter().any(|warning| warning.as_str().is_some_and(|text| text.contains("island"))), "{started:?}");
    let _worker = world.worker(WorkerConfig::default().with_queues(["island"]), workflows![echo], activities![])?;
    let handle = world.client().handle(&echo, "waiting");
    assert_eq!(world.result(&handle).await?, "later");
    Ok(())
}

pub async fn fifty_starts_of_one_key_at_once_make_one_run(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![patient], activities![])?;
    world.start(&patient, "warm-up", ()).await?.terminate("known now").await?;
    let starts = (0..50).map(|_| world.client().start(&patient, StartOptions::new("contended"), ()));
    let handles = futures::future::try_join_all(starts).await?;
    let ids: BTreeSet<_> = handles.iter().map(|handle| handle.execution_id().to_owned()).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(handles.iter().filter(|handle| handle.started_fresh()).count(), 1);
    handles[0].terminate("test over").await?;
    Ok(())
}
