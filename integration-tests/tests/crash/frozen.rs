//! An owner that sleeps through its own succession: calls that reach it meanwhile are answered after it wakes, and must not be answered from
//! what it remembers.

use crate::strike::TAKEOVER;
use anyhow::Context as _;
use harvest_ids::ExecutionId;
use harvest_integration_tests::eventually;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::store::{Fences, Stores};
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_proto::internal::v1::{GetResultCall, GetWorkflowCall, SignalWorkflowCall, StartWorkflowCall};
use harvest_proto::v1;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

#[workflow]
async fn waiting(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("word").await
}

/// How long a woken owner may take to answer or to break the connection.
const ANSWER: Duration = Duration::from_secs(30);

/// Calls that were on their way to the owner while it slept: none may succeed.
async fn ask_the_sleeper(channel: Channel, shard_id: u32, reference: v1::WorkflowRef) -> anyhow::Result<()> {
    let mut client = HistoryServiceClient::new(channel);
    let (mut get, mut result, mut signal) = (client.clone(), client.clone(), client.clone());
    let workflow = Some(reference.clone());
    let read = get.get_workflow(GetWorkflowCall { shard_id, request: Some(v1::GetWorkflowRequest { workflow: workflow.clone() }) });
    let outcome = result.get_result(GetResultCall { shard_id, request: Some(v1::GetResultRequest { workflow: workflow.clone(), wait_ms: 0 }) });
    let late = v1::SignalWorkflowRequest { workflow, signal_name: "word".to_owned(), request_id: "late".to_owned(), payload: None };
    let write = signal.signal_workflow(SignalWorkflowCall { shard_id, request: Some(late) });
    let again = v1::StartWorkflowRequest {
        namespace: reference.namespace,
        workflow_type: "waiting".to_owned(),
        workflow_id: "started-late".to_owned(),
        ..v1::StartWorkflowRequest::default()
    };
    let start = client.start_workflow(StartWorkflowCall { shard_id, request: Some(again) });
    let (read, outcome, write, start) = tokio::join!(read, outcome, write, start);
    for (what, refused) in [("a read", read.err()), ("a result", outcome.err()), ("a signal", write.err()), ("a start", start.err())] {
        let status = refused.with_context(|| format!("{what} was answered by an owner that had lost its shard"))?;
        println!("{what}: {:?}", status.message());
    }
    Ok(())
}

/// A run on a shard of this process.
async fn run_of(fleet: &Fleet, world: &World, owner: &str) -> anyhow::Result<(harvest_sdk::WorkflowHandle<String>, u32)> {
    let (stores, fences) = (Stores::open(fleet).await?, Fences::open(fleet).await?);
    for number in 0..64 {
        let handle = world.start(&waiting, &format!("run-{number}"), ()).await?;
        let id: ExecutionId = handle.execution_id().parse()?;
        let shard = stores.shard_of(id)?.0;
        if fences.owners(fleet).await?.get(&i32::try_from(shard)?).is_some_and(|found| found == owner) {
            return Ok((handle, shard));
        }
    }
    anyhow::bail!("no shard belongs to {owner}")
}

async fn sleep_through(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "frozen")?;
    world.serve(workflows![waiting], activities![])?;
    let fences = Fences::open(&fleet).await?;
    eventually("both own shards", Duration::from_secs(30), || async {
        let owners = fences.owners(&fleet).await?;
        Ok(["history-1", "history-2"].iter().all(|name| owners.values().filter(|owner| owner == name).count() == 2).then_some(()))
    })
    .await?;
    let (handle, shard) = run_of(&fleet, &world, "history-1").await?;
    let sleeper = fleet.process("history-1")?;
    let channel = Endpoint::from_shared(fleet.address("history-1")?)?.connect().await?;
    let before = fences.shards().await?;
    sleeper.freeze()?;
    let reference = v1::WorkflowRef { namespace: "frozen".to_owned(), execution_id: handle.execution_id().to_owned(), ..v1::WorkflowRef::default() };
    let asking = harvest_runtime::spawn_owned("ask", ask_the_sleeper(channel, shard, reference));
    handle.signal("word", "right").await?;
    assert_eq!(world.result(&handle).await?, "right");
    fences.takeover(&before, &[i32::try_from(shard)?], TAKEOVER).await?;
    sleeper.thaw()?;
    tokio::time::timeout(ANSWER, asking).await.context("the woken owner answers nothing")???;
    assert!(world.list("workflow_id=started-late").await?.is_empty());
    let signals = world.variants(&handle).await?.iter().filter(|variant| *variant == "SignalReceived").count();
    assert_eq!(signals, 1);
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_slept_through_its_succession_answers_nothing_from_memory() {
    with_fleet(Plan::new(Topology::Single, "sleeper").copies("history", 2), sleep_through).await;
}
