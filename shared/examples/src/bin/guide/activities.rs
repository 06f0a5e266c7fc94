//! docs/guide/activities.md

use harvest_sdk::prelude::*;
use std::time::Duration;

/// Charges a card.
#[activity(start_to_close = "10s", retry = RetryPolicy::exponential(5, Duration::from_secs(1)))]
pub async fn charge(ctx: &ActivityContext, cents: u64) -> Result<String, ActivityFailure> {
    if cents > 100_000 {
        return Err(ActivityFailure::non_retryable("CardDeclined", "over the card's limit"));
    }
    // The same in every attempt: give it to the bank, so that it charges once.
    Ok(format!("receipt for {}", ctx.idempotency_key()))
}

/// Pays, and takes a declined card for an answer.
#[workflow(execution_timeout = "1h")]
pub async fn pay(ctx: &WorkflowContext, cents: u64) -> Result<String, HarvestError> {
    let options = ActivityOptions::new().start_to_close(Duration::from_secs(5));
    match ctx.execute_activity_with_opts(&charge, cents, options).await {
        Err(HarvestError::ActivityFailed { error_type, .. }) if error_type == "CardDeclined" => Ok("declined".to_owned()),
        other => other,
    }
}

/// Imports pages; an attempt goes on where the one before it was.
#[activity(start_to_close = "1h", heartbeat_timeout = "10s", retry = RetryPolicy::fixed(20, Duration::from_secs(5)))]
pub async fn import(ctx: &ActivityContext, pages: u32) -> Result<u32, ActivityFailure> {
    let done: u32 = ctx.heartbeat_details()?.unwrap_or(0);
    for page in done..pages {
        import_page(page).await;
        ctx.heartbeat(page + 1).await?; // an error when the attempt should stop
    }
    Ok(pages)
}

async fn import_page(_page: u32) {}
