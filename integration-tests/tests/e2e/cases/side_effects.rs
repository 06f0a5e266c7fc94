//! Values taken from outside.

use harvest_integration_tests::World;
use harvest_integration_tests::samples::note;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::SystemTime;

/// Takes values, tells them to an activity, and gives both: the values are those of the first execution however often the code is replayed.
#[workflow]
async fn takes_values(ctx: &WorkflowContext) -> Result<(String, String), HarvestError> {
    let now = ctx.system_now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let custom: u32 = ctx.side_effect("dice", || std::process::id() ^ 0x5a5a).await?;
    let values = format!("{now} {} {} {} {custom}", ctx.new_uuid(), ctx.random_u64(), ctx.random_range(5..10));
    let told = ctx.execute_activity(&note, values.clone()).await?;
    ctx.receive_signal::<()>("end").await?;
    Ok((values, told))
}

pub async fn recorded_values_are_the_same_on_every_replay(world: Arc<World>) -> anyhow::Result<()> {
    // No cache: each task replays everything.
    let worker = world.worker(WorkerConfig::default().with_workflow_cache_size(0), workflows![takes_values], activities![note])?;
    let handle = world.start(&takes_values, "values", ()).await?;
    world.wait_for_calls("values", 1).await?;
    // Another worker goes on with the run.
    worker.stop().await?;
    world.serve(workflows![takes_values], activities![note])?;
    handle.signal("end", ()).await?;
    let (values, told) = world.result(&handle).await?;
    assert_eq!(values, told);
    assert_eq!(world.calls_of("values").len(), 1);
    assert_eq!(world.variants(&handle).await?.iter().filter(|variant| *variant == "SideEffectRecorded").count(), 5);
    Ok(())
}
