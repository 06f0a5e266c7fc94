//! What a run may cost in commits: counted by the fences in Postgres, each of which counts the commits of its shard.

use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::samples::{echo, note};
use harvest_integration_tests::store::Fences;
use harvest_integration_tests::{Plan, Topology, World};
use harvest_sdk::prelude::*;

#[workflow]
async fn one_note(ctx: &WorkflowContext, text: String) -> Result<String, HarvestError> {
    ctx.execute_activity(&note, text).await
}

/// At most this many for a run of one activity, alone.
const COMMITS_ALONE: i64 = 5;
const ALONE: i64 = 20;
const TOGETHER: i64 = 256;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_alone_costs_few_commits_and_many_runs_share_theirs() {
    with_fleet(Plan::new(Topology::Single, "budget"), |fleet| async move {
        let world = World::new(&fleet, "budget")?;
        world.serve(workflows![one_note], activities![note])?;
        world.result(&world.start(&one_note, "warm-up", "x".to_owned()).await?).await?;
        let fences = Fences::open(&fleet).await?;

        let before = fences.total_batches().await?;
        for number in 0..ALONE {
            world.result(&world.start(&one_note, &format!("alone-{number}"), "x".to_owned()).await?).await?;
        }
        let alone = fences.total_batches().await? - before;
        println!("{ALONE} runs one after another: {alone} commits");
        anyhow::ensure!(alone <= COMMITS_ALONE * ALONE, "{alone} commits for {ALONE} runs");

        let before = fences.total_batches().await?;
        let one = |number: i64| {
            let world = world.clone();
            async move { world.result(&world.start(&one_note, &format!("together-{number}"), "x".to_owned()).await?).await }
        };
        futures::StreamExt::collect::<Vec<_>>(futures::StreamExt::buffer_unordered(futures::stream::iter((0..TOGETHER).map(one)), 64))
            .await
            .into_iter()
            .collect::<anyhow::Result<Vec<String>>>()?;
        let together = fences.total_batches().await? - before;
        println!("{TOGETHER} runs from 64 clients: {together} commits");
        // A build without optimization decides too slowly for its commits to fill: there it is only that they are shared at all.
        let most = if cfg!(debug_assertions) { 2 * TOGETHER } else { TOGETHER };
        anyhow::ensure!(together < most, "{together} commits for {TOGETHER} runs");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_without_steps_that_starts_in_its_workers_process_is_two_commits() {
    with_fleet(Plan::new(Topology::Single, "budget-eager"), |fleet| async move {
        let world = World::new(&fleet, "budget")?;
        let (worker, client) = world.worker_with_client(WorkerConfig::default(), workflows![echo]).await?;
        let fences = Fences::open(&fleet).await?;
        let before = fences.total_batches().await?;
        for number in 0..ALONE {
            world.result(&client.start(&echo, StartOptions::new(format!("alone-{number}")), "x".to_owned()).await?).await?;
        }
        let commits = fences.total_batches().await? - before;
        let given = fleet.counted("harvest_workflow_eager_started_total{queue=\"default\",workflow=\"echo\"}").await?;
        let dispatched = fleet.counted("harvest_queue_dispatched_total{kind=\"workflow\"}").await?;
        println!("{ALONE} runs: {commits} commits, {given} first tasks with the answer, {dispatched} by matching");
        anyhow::ensure!(commits <= 2 * ALONE && dispatched == 0.0, "{commits} commits and {dispatched} tasks by matching for {ALONE} runs");
        worker.stop().await
    })
    .await;
}
