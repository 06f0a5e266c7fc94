//! docs/guide/determinism.md

use harvest_sdk::prelude::*;

/// An invoice whose tax was once one rate for all: runs that began then keep it, new ones ask by country.
#[workflow]
pub async fn invoice(ctx: &WorkflowContext, cents: u64) -> Result<u64, HarvestError> {
    let tax = if ctx.patched("tax-by-country") {
        ctx.execute_activity(&tax_by_country, (cents, "DE".to_owned())).await?
    } else {
        ctx.execute_activity(&tax, cents).await?
    };
    Ok(cents + tax)
}

/// The old step.
#[activity(start_to_close = "10s")]
pub async fn tax(_ctx: &ActivityContext, cents: u64) -> Result<u64, ActivityFailure> {
    Ok(cents / 5)
}

/// The new step.
#[activity(start_to_close = "10s")]
pub async fn tax_by_country(_ctx: &ActivityContext, cents: u64, _country: String) -> Result<u64, ActivityFailure> {
    Ok(cents * 19 / 100)
}
