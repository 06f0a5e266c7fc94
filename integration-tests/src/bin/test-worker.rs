//! A worker process for tests: runs the shared samples until SIGTERM. Can be killed, and armed with a crash point.

use anyhow::Context as _;
use harvest_integration_tests::observer::ObserverClient;
use harvest_integration_tests::samples;
use harvest_runtime::Shutdown;
use harvest_sdk::{HarvestBuilder, WorkerConfig};

fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name).with_context(|| format!("{name} must be set"))
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    harvest_runtime::telemetry::init();
    harvest_runtime::crash::arm_from_environment()?;
    let addresses = variable("TEST_WORKER_ADDRESSES")?;
    let config = WorkerConfig::default()
        .with_addresses(addresses.split(','))
        .with_namespace(variable("TEST_WORKER_NAMESPACE")?)
        .with_queues([variable("TEST_WORKER_QUEUE")?]);
    let worker = HarvestBuilder::new()
        .workflows(samples::workflows())
        .activities(samples::activities())
        .state(ObserverClient::new(&variable("TEST_WORKER_OBSERVER")?))
        .worker(config)
        .build()?;
    let shutdown = Shutdown::on_signals()?;
    worker.run(async move { shutdown.begun().await }).await?;
    Ok(())
}
