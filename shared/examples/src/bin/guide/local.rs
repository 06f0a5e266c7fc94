//! docs/guide/local-activities.md

use harvest_sdk::prelude::*;
use std::time::Duration;

/// The shelf that a parcel goes to: quick, and needs nothing but what is in memory.
#[activity(local = true, start_to_close = "2s", retry = RetryPolicy::fixed(3, Duration::from_millis(50)))]
pub async fn shelf(_ctx: &ActivityContext, parcel: String) -> Result<u32, String> {
    Ok(parcel.bytes().map(u32::from).sum::<u32>() % 100)
}

#[workflow]
pub async fn sort_parcels(ctx: &WorkflowContext, parcels: Vec<String>) -> Result<Vec<u32>, HarvestError> {
    let mut shelves = Vec::new();
    for parcel in parcels {
        shelves.push(ctx.execute_activity(&shelf, parcel).await?);
    }
    Ok(shelves)
}
