//! Activities: results, retries, failures, cancellation.

use harvest_integration_tests::World;
use harvest_integration_tests::observer::report;
use harvest_integration_tests::samples::{flaky, note};
use harvest_sdk::WorkflowOutcomeError;
use harvest_sdk::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

#[workflow]
async fn noting(ctx: &WorkflowContext, text: String) -> Result<String, HarvestError> {
    ctx.execute_activity(&note, text).await
}

pub async fn a_result_reaches_the_workflow_and_the_caller(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![noting], activities![note])?;
    let handle = world.start(&noting, "one", "hello".to_owned()).await?;
    assert_eq!(world.result(&handle).await?, "hello");
    let calls = world.calls_of("one");
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].attempt, calls[0].payload.as_str()), (1, Some("hello")));
    let expected = ["WorkflowStarted", "WorkflowTaskCompleted", "ActivityScheduled", "ActivityCompleted", "WorkflowTaskCompleted", "WorkflowCompleted"];
    assert_eq!(world.variants(&handle).await?, expected);
    let info = handle.describe().await?;
    assert_eq!((info.state.as_str(), info.history_events, info.pending_activities.len()), ("COMPLETED", 6, 0));
    // The same over HTTP.
    let answer = world.api().get(&format!("/workflows/{}/result?wait=5s", handle.execution_id())).await?;
    assert_eq!((answer.status.as_u16(), answer.text("state"), answer.text("output")), (200, "COMPLETED", "hello"));
    Ok(())
}

#[workflow]
async fn persistent(ctx: &WorkflowContext, failures: u32) -> Result<u32, HarvestError> {
    ctx.execute_activity(&flaky, failures).await
}

pub async fn a_failing_activity_is_tried_again_by_its_policy_under_one_key(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![persistent], activities![flaky])?;
    let handle = world.start(&persistent, "flaky", 2).await?;
    assert_eq!(world.result(&handle).await?, 3);
    let calls = world.calls_of("flaky");
    assert_eq!(calls.iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(calls.iter().map(|call| &call.idempotency_key).collect::<BTreeSet<_>>().len(), 1);
    // Attempts that are tried again leave no event.
    assert_eq!(world.variants(&handle).await?.iter().filter(|variant| variant.starts_with("Activity")).count(), 2);
    Ok(())
}

pub async fn attempts_run_out_with_the_last_failure(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![persistent], activities![flaky])?;
    let handle = world.start(&persistent, "hopeless", 9).await?;
    match world.failure(&handle).await? {
        WorkflowOutcomeError::Failed { error_type, message, .. } => {
            assert_eq!(error_type, "Flaky");
            assert!(message.contains("attempt 5"), "{message}");
        }
        other => anyhow::bail!("{other:?}"),
    }
    assert_eq!(world.calls_of("hopeless").len(), 5);
    Ok(())
}

#[activity(start_to_close = "30s", retry = RetryPolicy::fixed(5, Duration::from_millis(10)))]
async fn refuse(ctx: &ActivityContext) -> Result<(), ActivityFailure> {
    report(ctx, "refuse", None).await?;
    Err(ActivityFailure::non_retryable("Refused", "never").with_details(&serde_json::json!({"code": 7}))?)
}

#[workflow]
async fn refused(ctx: &WorkflowContext) -> Result<String, String> {
    match ctx.execute_activity(&refuse, ()).await {
        Err(HarvestError::ActivityFailed { attempt, error_type, details, non_retryable, .. }) => {
            Ok(format!("{attempt} {error_type} {details:?} {non_retryable}"))
        }
        other => Err(format!("{other:?}")),
    }
}

pub async fn a_non_retryable_failure_ends_at_the_first_attempt(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![refused], activities![refuse])?;
    let handle = world.start(&refused, "refused", ()).await?;
    assert_eq!(world.result(&handle).await?, r#"1 Refused Some(Object {"code": Number(7)}) true"#);
    assert_eq!(world.calls_of("refused").len(), 1);
    Ok(())
}

#[activity(start_to_close = "30s", retry = RetryPolicy::fixed(2, Duration::from_millis(10)))]
async fn explode(ctx: &ActivityContext) -> Result<(), ActivityFailure> {
    report(ctx, "explode", None).await?;
    panic!("boom at attempt {}", ctx.attempt());
}

#[workflow]
async fn exploding(ctx: &WorkflowContext) -> Result<(), HarvestError> {
    ctx.execute_activity(&explode, ()).await
}

pub async fn a_panic_in_an_activity_is_a_typed_failure(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![exploding, noting], activities![explode, note])?;
    let handle = world.start(&exploding, "boom", ()).await?;
    match world.failure(&handle).await? {
        WorkflowOutcomeError::Failed { error_type, message, .. } => {
            assert_eq!(error_type, "HandlerPanic");
            assert!(message.contains("boom at attempt 2"), "{message}");
        }
        other => anyhow::bail!("{other:?}"),
    }
    // The worker lives on.
    let after = world.start(&noting, "after", "still here".to_owned()).await?;
    assert_eq!(world.result(&after).await?, "still here");
    Ok(())
}

#[workflow]
async fn fan_out(ctx: &WorkflowContext, width: u32) -> Result<Vec<String>, HarvestError> {
    let asked: Vec<_> = (0..width).map(|number| ctx.execute_activity(&note, number.to_string())).collect();
    futures::future::try_join_all(asked).await
}

pub async fn many_activities_at_once_all_come_back_in_their_places(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![fan_out], activities![note])?;
    let handle = world.start(&fan_out, "wide", 100).await?;
    assert_eq!(world.result(&handle).await?, (0..100).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(world.calls_of("wide").len(), 100);
    Ok(())
}

/// Goes on until it is told to stop, beating all the time.
#[activity(start_to_close = "60s", heartbeat_timeout = "20s", retry = RetryPolicy::none())]
async fn endless(ctx: &ActivityContext) -> Result<(), ActivityFailure> {
    report(ctx, "begun", None).await?;
    ctx.heartbeat("begun").await?;
    ctx.cancelled().await;
    report(ctx, "told to stop", None).await?;
    Err(ActivityCancelled.into())
}

#[workflow]
async fn impatient(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    let work = ctx.execute_activity(&endless, ());
    ctx.receive_signal::<()>("enough").await?;
    work.cancel();
    match work.await {
        Err(HarvestError::Cancelled { .. }) => Ok("cancelled".to_owned()),
        other => Ok(format!("{other:?}")),
    }
}

pub async fn a_cancelled_activity_learns_of_it_by_its_heartbeat(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![impatient], activities![endless])?;
    let handle = world.start(&impatient, "impatient", ()).await?;
    world.wait_for_calls("impatient", 1).await?;
    handle.signal("enough", ()).await?;
    assert_eq!(world.result(&handle).await?, "cancelled");
    let said: Vec<_> = world.calls_of("impatient").into_iter().map(|call| call.payload).collect();
    assert_eq!(said, ["begun", "told to stop"]);
    Ok(())
}
