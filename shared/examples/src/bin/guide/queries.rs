//! docs/guide/queries.md

use harvest_sdk::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A parcel on its way: each `scan` signal is a stop, `null` the last one.
#[workflow]
pub async fn delivery(ctx: &WorkflowContext) -> Result<usize, HarvestError> {
    let stops = Arc::new(Mutex::new(Vec::<String>::new()));
    let seen = stops.clone();
    ctx.register_query("stops", move || lock(&seen).clone());
    let seen = stops.clone();
    ctx.register_query_with_args("stop", move |number: usize| lock(&seen).get(number).cloned());

    while let Some(stop) = ctx.receive_signal::<Option<String>>("scan").await? {
        lock(&stops).push(stop);
    }
    Ok(lock(&stops).len())
}

fn lock(stops: &Mutex<Vec<String>>) -> std::sync::MutexGuard<'_, Vec<String>> {
    stops.lock().unwrap_or_else(PoisonError::into_inner)
}
