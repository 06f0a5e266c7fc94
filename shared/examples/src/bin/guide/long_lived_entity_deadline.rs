//! docs/guide/long-lived.md

use harvest_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a subscription remembers from run to run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Subscription {
    pub customer: String,
    pub paid: u32,
}

/// Bills a customer for as long as nobody cancels. Its history stays short, but its execution timeout would end it one day: so it goes on in a new run
/// before that, with a new timeout.
#[workflow(execution_timeout = "24h", sla = "23h")]
pub async fn long_lived_entity_deadline(ctx: &WorkflowContext, mut subscription: Subscription) -> Result<Subscription, HarvestError> {
    loop {
        if ctx.should_continue_as_new() {
            ctx.continue_as_new(&subscription).await?;
        }
        match ctx.receive_signal_timeout::<String>("end", Duration::from_secs(3_600)).await? {
            Some(_) => return Ok(subscription),
            None => {
                ctx.execute_activity(&bill, subscription.customer.clone()).await?;
                subscription.paid += 1;
            }
        }
    }
}

#[activity(start_to_close = "30s")]
pub async fn bill(ctx: &ActivityContext, customer: String) -> Result<String, ActivityFailure> {
    Ok(format!("{customer} has paid ({})", ctx.idempotency_key()))
}
