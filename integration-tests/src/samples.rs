//! Workflows and activities that several tests share, and that the `test-worker` program runs.

use crate::observer::report;
use harvest_runtime::{Clock, SystemClock, crash};
use harvest_sdk::prelude::*;
use harvest_sdk::{ActivityRegistration, WorkflowRegistration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Everything here that runs as a workflow.
pub fn workflows() -> Vec<WorkflowRegistration> {
    workflows![purchase, parcel, lonely, steadily, crowd, echo, considered]
}

/// Everything here that runs as an activity.
pub fn activities() -> Vec<ActivityRegistration> {
    activities![step, untimed, steady, brief, note, flaky]
}

/// The signal that a purchase waits for.
pub const APPROVE: &str = "approve";

/// What a purchase is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purchase {
    /// Goes through every step into the result.
    pub item: String,
    /// How long the durable timer in it takes, in ms; at least 1.
    pub pause_ms: u64,
}

/// A run that uses every path between the services: activities, a timer, an awaited child (mostly on another shard), a signal.
#[workflow]
pub async fn purchase(ctx: &WorkflowContext, purchase: Purchase) -> Result<String, HarvestError> {
    let reserved = ctx.execute_activity(&step, format!("reserve {}", purchase.item)).await?;
    ctx.timer("pause", Duration::from_millis(purchase.pause_ms)).await?;
    let packed = ctx.spawn_child_workflow(&parcel, purchase.item.clone()).await?;
    let approval: String = ctx.receive_signal(APPROVE).await?;
    let shipped = ctx.execute_activity(&step, format!("ship {}", purchase.item)).await?;
    Ok(format!("{reserved}, {packed}, {approval}, {shipped}"))
}

/// What a purchase of this item ends with.
pub fn receipt(item: &str) -> String {
    format!("reserve {item} done, pack {item} done, approved {item}, ship {item} done")
}

/// The child of a purchase.
#[workflow]
pub async fn parcel(ctx: &WorkflowContext, item: String) -> Result<String, HarvestError> {
    ctx.execute_activity(&step, format!("pack {item}")).await
}

/// One step: tells the observer, and dies before or after if it is told to.
#[activity(start_to_close = "20s", retry = RetryPolicy::fixed(50, Duration::from_millis(200)).with_jitter(Jitter::None))]
pub async fn step(ctx: &ActivityContext, what: String) -> Result<String, ActivityFailure> {
    crash::point("worker.taken");
    report(ctx, &what, None).await?;
    crash::point("worker.done");
    Ok(format!("{what} done"))
}

/// One activity without any timeout.
#[workflow]
pub async fn lonely(ctx: &WorkflowContext, what: String) -> Result<String, HarvestError> {
    ctx.execute_activity(&untimed, what).await
}

/// Has no timeout: only the silence of its worker tells that an attempt is lost. Waits at the gate `untimed`, at its first attempt only.
#[activity(retry = RetryPolicy::fixed(3, Duration::from_millis(100)))]
pub async fn untimed(ctx: &ActivityContext, what: String) -> Result<String, ActivityFailure> {
    let gate = (ctx.attempt() == 1).then_some("untimed");
    report(ctx, &what, gate).await?;
    Ok(format!("{what} at attempt {}", ctx.attempt()))
}

/// One activity that must beat.
#[workflow]
pub async fn steadily(ctx: &WorkflowContext, what: String) -> Result<String, HarvestError> {
    ctx.execute_activity(&steady, what).await
}

/// Waits at the gate `steady`, at its first attempt only, and beats meanwhile: silence would end the attempt.
#[activity(start_to_close = "5m", heartbeat_timeout = "2s", retry = RetryPolicy::fixed(3, Duration::from_millis(100)))]
pub async fn steady(ctx: &ActivityContext, what: String) -> Result<String, ActivityFailure> {
    let (gate, clock) = ((ctx.attempt() == 1).then_some("steady"), SystemClock::new());
    let reporting = report(ctx, &what, gate);
    tokio::pin!(reporting);
    loop {
        tokio::select! {
            reported = &mut reporting => break reported?,
            () = clock.sleep(Duration::from_millis(300)) => ctx.heartbeat("on").await?,
        }
    }
    Ok(format!("{what} at attempt {}", ctx.attempt()))
}

/// So many activities at once; how many attempts they took in all.
#[workflow]
pub async fn crowd(ctx: &WorkflowContext, count: u32) -> Result<u32, HarvestError> {
    let all: Vec<_> = (0..count).map(|number| ctx.execute_activity(&brief, number)).collect();
    Ok(futures::future::try_join_all(all).await?.iter().sum())
}

/// Takes half a second. Only its timeout of five minutes or a shorter rule ends an attempt that nobody runs.
#[activity(start_to_close = "5m", retry = RetryPolicy::fixed(5, Duration::from_millis(100)))]
pub async fn brief(ctx: &ActivityContext, number: u32) -> Result<u32, ActivityFailure> {
    SystemClock::new().sleep(Duration::from_millis(500)).await;
    report(ctx, number, None).await?;
    Ok(ctx.attempt())
}

/// No step at all.
#[workflow]
pub async fn echo(_ctx: &WorkflowContext, text: String) -> Result<String, HarvestError> {
    Ok(text)
}

/// No step at all; its worker dies while it decides, if it is told to.
#[workflow]
pub async fn considered(_ctx: &WorkflowContext, text: String) -> Result<String, HarvestError> {
    crash::point("worker.deciding");
    Ok(text)
}

/// Tells the observer and gives its text back.
#[activity(start_to_close = "30s", retry = RetryPolicy::none())]
pub async fn note(ctx: &ActivityContext, text: String) -> Result<String, ActivityFailure> {
    report(ctx, &text, None).await?;
    Ok(text)
}

/// Fails as often as it is told, then gives its attempt.
#[activity(start_to_close = "30s", retry = RetryPolicy::fixed(5, Duration::from_millis(50)))]
pub async fn flaky(ctx: &ActivityContext, failures: u32) -> Result<u32, ActivityFailure> {
    report(ctx, failures, None).await?;
    if ctx.attempt() <= failures {
        return Err(ActivityFailure::new("Flaky", format!("attempt {} of {failures} that fail", ctx.attempt())));
    }
    Ok(ctx.attempt())
}
