//! Starts in the worker's process.

use harvest_integration_tests::World;
use harvest_integration_tests::samples::echo;
use harvest_sdk::prelude::*;
use std::sync::Arc;

const RUNS: u32 = 20;
const SERIES: &str = "harvest_workflow_eager_started_total{queue=\"eager\",workflow=\"echo\"}";

pub async fn a_start_in_the_workers_process_brings_its_first_task(world: Arc<World>) -> anyhow::Result<()> {
    let (worker, client) = world.worker_with_client(WorkerConfig::default().with_queues(["eager"]), workflows![echo]).await?;
    for number in 0..RUNS {
        let handle = client.start(&echo, StartOptions::new(format!("own-{number}")).task_queue("eager"), number.to_string()).await?;
        assert_eq!(world.result(&handle).await?, number.to_string());
    }
    assert_eq!(world.fleet().counted(SERIES).await?, f64::from(RUNS));
    // Another program's starts come by the stream.
    let handle = world.start_with(&echo, StartOptions::new("other").task_queue("eager"), "x".to_owned()).await?;
    assert_eq!(world.result(&handle).await?, "x");
    assert_eq!(world.fleet().counted(SERIES).await?, f64::from(RUNS));
    worker.stop().await
}
