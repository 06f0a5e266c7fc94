//! docs/guide/retries.md

use harvest_sdk::prelude::*;
use std::time::Duration;

/// How the carrier is asked: up to ten times, the delays growing to a minute, unless the parcel is too large for it.
fn patient() -> RetryPolicy {
    RetryPolicy::exponential(10, Duration::from_secs(2))
        .with_max_interval(Duration::from_secs(60))
        .with_jitter(Jitter::Decorrelated)
        .with_non_retryable_errors(["TooLarge"])
}

/// Books a parcel.
#[activity(start_to_close = "20s", retry = patient())]
pub async fn book_parcel(_ctx: &ActivityContext, kilos: u32) -> Result<String, ActivityFailure> {
    match kilos {
        0 => Err(ActivityFailure::non_retryable("Empty", "there is nothing to send")),
        1..=30 => Ok(format!("parcel of {kilos} kg")),
        _ => Err(ActivityFailure::new("TooLarge", format!("{kilos} kg"))),
    }
}

/// Sends a parcel; for a small one it does not try for long.
#[workflow]
pub async fn send_parcel(ctx: &WorkflowContext, kilos: u32) -> Result<String, HarvestError> {
    if kilos > 2 {
        return ctx.execute_activity(&book_parcel, kilos).await;
    }
    let options = ActivityOptions::new().retry(RetryPolicy::fixed(2, Duration::from_secs(1)));
    ctx.execute_activity_with_opts(&book_parcel, kilos, options).await
}

/// What activities of this worker's workflows have that declare nothing themselves.
pub fn with_floor(config: WorkerConfig) -> WorkerConfig {
    config.with_default_activity_retry_policy(RetryPolicy::fixed(3, Duration::from_secs(1))).with_default_activity_start_to_close(Duration::from_secs(30))
}
