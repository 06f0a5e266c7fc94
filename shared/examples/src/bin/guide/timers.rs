//! docs/guide/timers-and-signals.md

use harvest_sdk::prelude::*;
use harvest_sdk::select;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The content of the signal.
#[derive(Debug, Serialize, Deserialize)]
pub struct Decision {
    approved: bool,
    by: String,
}

/// Waits for a person, but not for ever.
#[workflow]
pub async fn approval(ctx: &WorkflowContext, wait_secs: u64) -> Result<String, HarvestError> {
    Ok(match ctx.receive_signal_timeout::<Decision>("decide", Duration::from_secs(wait_secs)).await? {
        Some(Decision { approved: true, by }) => format!("approved by {by}"),
        Some(Decision { approved: false, by }) => format!("refused by {by}"),
        None => "nobody answered".to_owned(),
    })
}

/// Takes what is there first: the supplier's price or the end of our patience.
#[workflow]
pub async fn quote(ctx: &WorkflowContext, item: String) -> Result<Option<u64>, HarvestError> {
    let mut price = ctx.execute_activity(&ask_supplier, item);
    let mut patience = ctx.start_timer("patience", Duration::from_secs(60));
    select! {
        price = price => Ok(Some(price?)),
        fired = patience => {
            fired?;
            price.cancel();
            Ok(None)
        }
    }
}

/// Asks for a price.
#[activity(start_to_close = "5m")]
pub async fn ask_supplier(_ctx: &ActivityContext, item: String) -> Result<u64, ActivityFailure> {
    u64::try_from(item.len()).map_err(|error| ActivityFailure::new("Price", error.to_string()))
}
