//! docs/guide/cancellation.md

use harvest_sdk::prelude::*;

/// Books a car and waits for its return; asked to cancel, it gives the car back first.
#[workflow]
pub async fn rental(ctx: &WorkflowContext, car: String) -> Result<String, HarvestError> {
    ctx.execute_activity(&book, car.clone()).await?;
    let returned = ctx.or_cancelled(ctx.receive_signal::<String>("returned")).await;
    if returned.is_err() {
        ctx.execute_activity(&give_back, car).await?; // steps after the request run as ever
    }
    returned // HarvestError::Cancelled ends the run as CANCELLED
}

/// Books a car.
#[activity(start_to_close = "10s")]
pub async fn book(_ctx: &ActivityContext, _car: String) -> Result<(), ActivityFailure> {
    Ok(())
}

/// Undoes the booking.
#[activity(start_to_close = "10s")]
pub async fn give_back(_ctx: &ActivityContext, _car: String) -> Result<(), ActivityFailure> {
    Ok(())
}
