//! The code of the pages in `docs/guide`, and a worker that runs it: `cargo run --bin guide -- http://127.0.0.1:7233`.
//!
//! A test holds the pages' code blocks against these files, so that what the pages show compiles.

mod activities;
mod cancellation;
mod children;
mod local;
mod long_lived_entity_deadline;
mod queries;
mod retries;
#[cfg(test)]
mod testing;
mod timeouts;
mod timers;
mod versions;

use harvest_sdk::prelude::*;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7233".to_owned());
    let worker = HarvestBuilder::new()
        .workflows(workflows![activities::pay, timers::approval, timers::quote, children::batch, children::greeting, children::tally])
        .workflows(workflows![cancellation::rental, queries::delivery, versions::invoice])
        .activities(activities![activities::charge, activities::import, timers::ask_supplier, cancellation::book, cancellation::give_back])
        .activities(activities![versions::tax, versions::tax_by_country])
        .workflows(workflows![retries::send_parcel, timeouts::pay_in_time, timeouts::incremental_sync])
        .activities(activities![retries::book_parcel, timeouts::call_payment_api])
        .workflows(workflows![long_lived_entity_deadline::long_lived_entity_deadline])
        .activities(activities![long_lived_entity_deadline::bill])
        .workflows(workflows![local::sort_parcels])
        .activities(activities![local::shelf])
        .history_continue_as_new_threshold(20)
        .worker(retries::with_floor(WorkerConfig::default().with_addresses([address])))
        .build()?;
    let stop = harvest_runtime::Shutdown::on_signals()?;
    worker.run(async move { stop.begun().await }).await?;
    Ok(())
}
