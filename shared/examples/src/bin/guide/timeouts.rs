//! docs/guide/timeouts.md

use harvest_sdk::prelude::*;
use std::time::Duration;

/// Asks a payment provider: each attempt has 30 s, all of them together with the delays between them 5 minutes.
#[activity(schedule_to_close = "5m", start_to_close = "30s", retry = RetryPolicy::exponential(10, Duration::from_secs(1)))]
pub async fn call_payment_api(ctx: &ActivityContext, cents: u64) -> Result<String, ActivityFailure> {
    if ctx.is_expiring_within(Duration::from_secs(2)) {
        return Err(ActivityFailure::new("Late", "not begun: there would be no time to answer"));
    }
    Ok(format!("paid {cents} ({})", ctx.idempotency_key()))
}

/// Pays, or says that it took too long.
#[workflow(execution_timeout = "1h")]
pub async fn pay_in_time(ctx: &WorkflowContext, cents: u64) -> Result<String, HarvestError> {
    match ctx.execute_activity(&call_payment_api, cents).await {
        Err(HarvestError::Timeout { timeout: TimeoutKind::ScheduleToClose, .. }) => Ok("too late".to_owned()),
        other => other,
    }
}

/// Goes on for a week, one short run after the other.
#[workflow(execution_timeout = "1h", chain_execution_timeout = "7d")]
pub async fn incremental_sync(ctx: &WorkflowContext, cursor: u64) -> Result<u64, HarvestError> {
    ctx.timer("pause", Duration::from_secs(60)).await?;
    ctx.continue_as_new(cursor + 1).await?;
    Ok(cursor)
}
