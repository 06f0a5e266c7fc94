//! The smallest Harvest program: one workflow, one activity, a worker and a client in one process. Needs a running `harvest dev`.

use harvest_sdk::prelude::*;
use std::time::Duration;

#[activity(start_to_close = "30s", retry = RetryPolicy::exponential(5, Duration::from_secs(1)))]
async fn greet(_ctx: &ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}"))
}

#[workflow(execution_timeout = "30d")]
async fn hello(ctx: &WorkflowContext, name: String) -> Result<String, HarvestError> {
    ctx.timer("breath", Duration::from_secs(2)).await?;
    ctx.execute_activity(&greet, name).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let workflow_id = arguments.next().unwrap_or_else(|| "hello-1".to_owned());
    let address = arguments.next().unwrap_or_else(|| "http://127.0.0.1:7233".to_owned());

    let worker =
        HarvestBuilder::new().workflows(workflows![hello]).activities(activities![greet]).worker(WorkerConfig::default().with_addresses([&address])).build()?;
    let client = worker.client()?;
    let welcomed = worker.welcomed();
    let answer = async {
        welcomed.await;
        let handle = client.start(&hello, StartOptions::new(workflow_id), "world".to_owned()).await?;
        println!("started {}", handle.execution_id());
        anyhow::Ok(handle.result().await?)
    };
    tokio::select! {
        ended = worker.run(std::future::pending()) => ended?,
        answer = answer => println!("{}", answer?),
    }
    Ok(())
}
