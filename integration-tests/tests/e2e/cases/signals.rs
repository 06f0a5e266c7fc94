//! Signals.

use harvest_integration_tests::World;
use harvest_integration_tests::samples::echo;
use harvest_sdk::ClientError;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Takes `count` signals after a signal `go`.
#[workflow]
async fn collector(ctx: &WorkflowContext, count: u32) -> Result<Vec<String>, HarvestError> {
    ctx.receive_signal::<()>("go").await?;
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(ctx.receive_signal("item").await?);
    }
    Ok(taken)
}

pub async fn a_signal_sent_before_the_code_asks_is_kept(world: Arc<World>) -> anyhow::Result<()> {
    // The type is known and nobody serves the queue: the run waits while the signals arrive.
    world.teach(workflows![collector]).await?;
    let handle = world.start(&collector, "early", 2).await?;
    handle.signal("item", "a").await?;
    handle.signal("item", "b").await?;
    handle.signal("go", ()).await?;
    world.serve(workflows![collector], activities![])?;
    assert_eq!(world.result(&handle).await?, ["a", "b"]);
    Ok(())
}

pub async fn signals_arrive_in_order_and_one_request_id_counts_once(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![collector], activities![])?;
    let handle = world.start(&collector, "ordered", 20).await?;
    for number in 0..20 {
        for _ in 0..2 {
            handle.signal_once("item", number.to_string(), &format!("request-{number}")).await?;
        }
    }
    // The same over HTTP: the answer says that it was known.
    let path = "/workflows/by-id/collector/ordered/signal/item";
    let again = world.api().post(path, &serde_json::json!({"payload": "19", "request_id": "request-19"})).await?;
    assert_eq!((again.status.as_u16(), again.body["signal_delivered"].as_bool()), (200, Some(false)), "{again:?}");
    handle.signal("go", ()).await?;
    assert_eq!(world.result(&handle).await?, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(world.variants(&handle).await?.iter().filter(|variant| *variant == "SignalReceived").count(), 21);
    Ok(())
}

#[workflow]
async fn waits_a_little(ctx: &WorkflowContext, millis: u64) -> Result<String, HarvestError> {
    match ctx.receive_signal_timeout::<String>("word", Duration::from_millis(millis)).await? {
        Some(word) => Ok(word),
        None => Ok("nothing came".to_owned()),
    }
}

pub async fn a_wait_for_a_signal_can_run_out(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![waits_a_little], activities![])?;
    let vain = world.start(&waits_a_little, "vain", 200).await?;
    let lucky = world.start(&waits_a_little, "lucky", 600_000).await?;
    lucky.signal("word", "here").await?;
    assert_eq!(world.result(&lucky).await?, "here");
    assert_eq!(world.result(&vain).await?, "nothing came");
    Ok(())
}

pub async fn a_closed_run_takes_no_signal(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![echo], activities![])?;
    let handle = world.start(&echo, "closed", "over".to_owned()).await?;
    world.result(&handle).await?;
    let refused = handle.signal("late", ()).await;
    assert!(matches!(&refused, Err(ClientError::Refused { reason, .. }) if reason == "WORKFLOW_CLOSED"), "{refused:?}");
    let answer = world.api().post(&format!("/workflows/{}/signal/late", handle.execution_id()), &serde_json::json!({"payload": 1})).await?;
    assert_eq!((answer.status.as_u16(), answer.text("reason")), (409, "WORKFLOW_CLOSED"), "{answer:?}");
    assert_eq!(world.variants(&handle).await?.last().map(String::as_str), Some("WorkflowCompleted"));
    Ok(())
}
