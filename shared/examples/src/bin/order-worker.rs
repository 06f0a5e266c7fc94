//! A worker for the order workflow and its activities. SIGTERM: takes no more tasks, finishes what it runs, ends.

use clap::Parser;
use harvest_examples::order::{self, BankClient, QUEUE};
use harvest_runtime::Shutdown;
use harvest_sdk::prelude::*;

/// A worker of the order example.
#[derive(Parser)]
struct Arguments {
    /// A frontend of the fleet, or `harvest dev`. May be given several times.
    #[arg(long, default_value = "http://127.0.0.1:7233")]
    address: Vec<String>,
    /// Where the bank is.
    #[arg(long, default_value = "http://127.0.0.1:7300")]
    bank: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    harvest_runtime::telemetry::init();
    let arguments = Arguments::parse();
    let worker = HarvestBuilder::new()
        .workflows(workflows![order::order])
        .activities(activities![order::reserve, order::release, order::charge, order::refund, order::ship])
        .state(BankClient::new(&arguments.bank))
        .worker(WorkerConfig::default().with_addresses(arguments.address).with_queues([QUEUE]))
        .build()?;
    let shutdown = Shutdown::on_signals()?;
    worker.run(async move { shutdown.begun().await }).await?;
    Ok(())
}
