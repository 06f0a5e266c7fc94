//! A worker process for tests: runs the shared samples until SIGTERM. Can be killed, and armed with a crash point.
//! `TEST_WORKER_GRACE_MS` and `TEST_WORKER_ACTIVITIES` set its shutdown timeout and how many activities it runs at once.

use anyhow::Context as _;
use harvest_integration_tests::observer::ObserverClient;
use harvest_integration_tests::samples;
use harvest_runtime::Shutdown;
use harvest_sdk::{Client, HarvestBuilder, StartOptions, WorkerConfig};
use std::time::Duration;

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
    let mut config = config;
    if let Ok(grace_ms) = std::env::var("TEST_WORKER_GRACE_MS") {
        config = config.with_shutdown_timeout(Duration::from_millis(grace_ms.parse()?));
    }
    if let Ok(activities) = std::env::var("TEST_WORKER_ACTIVITIES") {
        config = config.with_max_concurrent_activities(activities.parse()?);
    }
    let worker = HarvestBuilder::new()
        .workflows(samples::workflows())
        .activities(samples::activities())
        .state(ObserverClient::new(&variable("TEST_WORKER_OBSERVER")?))
        .worker(config)
        .build()?;
    let count: u32 = std::env::var("TEST_WORKER_STARTS").map_or(Ok(0), |count| count.parse()).context("TEST_WORKER_STARTS must be a number")?;
    let client = (count > 0).then(|| worker.client()).transpose()?;
    let welcomed = worker.welcomed();
    let starts = async {
        if let Some(client) = client {
            welcomed.await;
            start(&client, &variable("TEST_WORKER_QUEUE")?, count).await;
        }
        Ok(())
    };
    let shutdown = Shutdown::on_signals()?;
    let (served, started) = tokio::join!(worker.run(async move { shutdown.begun().await }), starts);
    served?;
    started
}

/// Starts so many runs by the worker's own client, all at once.
async fn start(client: &Client, queue: &str, count: u32) {
    let start = |number| client.start(&samples::considered, StartOptions::new(format!("own-{number}")).task_queue(queue), format!("text {number}"));
    for started in futures::future::join_all((0..count).map(start)).await {
        if let Err(error) = started {
            tracing::warn!(%error, "a start failed");
        }
    }
}
