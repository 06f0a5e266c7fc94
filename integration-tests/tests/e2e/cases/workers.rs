//! Workers: draining, and answers that must not count.

use anyhow::Context as _;
use harvest_integration_tests::World;
use harvest_integration_tests::eventually;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::samples::{self, echo, lonely};
use harvest_integration_tests::world::SOON;
use harvest_proto::v1;
use harvest_proto::v1::worker_service_client::WorkerServiceClient;
use harvest_sdk::WorkflowHandle;
use harvest_sdk::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;

pub async fn a_worker_that_is_terminated_finishes_what_it_runs_and_takes_nothing_more(world: Arc<World>) -> anyhow::Result<()> {
    world.observer().hold("untimed");
    let worker = world.fleet().start_worker("drained-worker", world.namespace(), "default", &[])?;
    world.remember(&samples::workflows());
    let handle = world.start(&lonely, "drained", "slow".to_owned()).await?;
    world.wait_for_calls("drained", 1).await?;
    worker.terminate()?;
    holds("the worker drains", SOON, || worker.tail().contains("shutting down")).await?;
    // From soon on it takes nothing any more: a run that is started then waits.
    let waiting = first_that_waits(&world).await?;
    world.observer().release("untimed");
    let status = worker.wait(Duration::from_secs(40)).await?;
    anyhow::ensure!(status.success(), "the worker ended with {status}: {}", worker.tail());
    // What it was running is done and recorded; what it was not running is open.
    assert!(world.variants(&handle).await?.contains(&"ActivityCompleted".to_owned()));
    assert_eq!(world.calls_of("drained").len(), 1);
    assert_eq!(waiting.describe().await?.state, "RUNNING");
    world.serve(samples::workflows(), samples::activities())?;
    assert_eq!(world.result(&handle).await?, "slow at attempt 1");
    assert_eq!(world.result(&waiting).await?, "later");
    Ok(())
}

/// Starts runs until one is not taken at once: its worker takes nothing any more.
async fn first_that_waits(world: &World) -> anyhow::Result<WorkflowHandle<String>> {
    for number in 0..50 {
        let handle = world.start(&echo, &format!("waiting-{number}"), "later".to_owned()).await?;
        if handle.poll_result(Duration::from_secs(1)).await?.is_none() {
            return Ok(handle);
        }
    }
    anyhow::bail!("the worker goes on taking tasks")
}

pub async fn connected_workers_are_listed_with_their_code(world: Arc<World>) -> anyhow::Result<()> {
    let config = WorkerConfig::default().with_identity("the-listed-one").with_build_id("build-7").with_queues(["left", "right"]);
    let _worker = world.worker(config, workflows![echo], activities![samples::note])?;
    let shown = eventually("the worker is listed", SOON, || async {
        let shown = world.api().get("/workers").await?;
        let found = shown.body["workers"].as_array().and_then(|workers| workers.iter().find(|worker| worker["identity"] == "the-listed-one").cloned());
        Ok(found)
    })
    .await?;
    assert_eq!(shown["build_id"], "build-7", "{shown}");
    assert_eq!(shown["queues"], serde_json::json!(["left", "right"]), "{shown}");
    assert_eq!((&shown["workflow_names"], &shown["activity_names"]), (&serde_json::json!(["echo"]), &serde_json::json!(["note"])), "{shown}");
    Ok(())
}

/// A worker made of plain calls.
struct HandMade {
    client: WorkerServiceClient<tonic::transport::Channel>,
    send: tokio::sync::mpsc::Sender<v1::WorkerMessage>,
    receive: tonic::Streaming<v1::ServerMessage>,
    worker_id: String,
}

impl HandMade {
    async fn connect(world: &World, queue: &str) -> anyhow::Result<Self> {
        let mut client = WorkerServiceClient::new(world.channel().await?);
        let (send, messages) = tokio::sync::mpsc::channel(16);
        let hello = v1::Hello {
            namespace: world.namespace().to_owned(),
            identity: "hand-made".to_owned(),
            task_queues: vec![queue.to_owned()],
            workflow_types: vec![v1::WorkflowTypeInfo { name: "by_hand".to_owned(), ..v1::WorkflowTypeInfo::default() }],
            sdk: "none".to_owned(),
            ..v1::Hello::default()
        };
        send.send(v1::WorkerMessage { message: Some(v1::worker_message::Message::Hello(hello)) }).await?;
        let mut receive = client.open_session(ReceiverStream::new(messages)).await?.into_inner();
        let welcome = receive.message().await?.context("a welcome")?;
        let Some(v1::server_message::Message::Welcome(welcome)) = welcome.message else { anyhow::bail!("{welcome:?} instead of a welcome") };
        Ok(Self { client, send, receive, worker_id: welcome.worker_id })
    }

    async fn take_workflow_task(&mut self, queue: &str) -> anyhow::Result<v1::WorkflowTask> {
        let credit = v1::Credit { task_queue: queue.to_owned(), workflow_tasks: 1, activity_tasks: 0 };
        self.send.send(v1::WorkerMessage { message: Some(v1::worker_message::Message::Credit(credit)) }).await?;
        let next = async {
            while let Some(message) = self.receive.message().await? {
                if let Some(v1::server_message::Message::WorkflowTask(task)) = message.message {
                    return anyhow::Ok(task);
                }
            }
            anyhow::bail!("the session ended")
        };
        tokio::time::timeout(SOON, next).await.context("no workflow task")?
    }

    async fn complete(&mut self, token: &[u8], worker_id: &str, word: &str) -> Result<v1::CompleteWorkflowTaskResponse, tonic::Status> {
        let output = v1::Payload { data: format!("\"{word}\"").into_bytes().into(), encoding: "json".to_owned() };
        let command = v1::Command { kind: Some(v1::command::Kind::CompleteWorkflow(v1::CompleteWorkflowCommand { output: Some(output) })) };
        let request = v1::CompleteWorkflowTaskRequest {
            task_token: token.to_vec().into(),
            worker_id: worker_id.to_owned(),
            commands: vec![command],
            ..v1::CompleteWorkflowTaskRequest::default()
        };
        self.client.complete_workflow_task(request).await.map(tonic::Response::into_inner)
    }
}

pub async fn garbage_stale_and_stolen_tokens_are_refused_and_harm_nobody(world: Arc<World>) -> anyhow::Result<()> {
    let mut owner = HandMade::connect(&world, "hands").await?;
    let mut thief = HandMade::connect(&world, "other-hands").await?;
    let handle = eventually("the fleet knows by_hand", SOON, || async {
        let options = StartOptions::new("prey").task_queue("hands");
        Ok(Some(world.client().start_raw::<String>("by_hand", options, ()).await?))
    })
    .await?;
    let task = owner.take_workflow_task("hands").await?;

    let garbage = owner.complete(b"\xff\x00garbage", &owner.worker_id.clone(), "x").await.expect_err("garbage is no token");
    assert_eq!(garbage.code(), tonic::Code::InvalidArgument, "{garbage:?}");
    let stolen = thief.complete(&task.task_token, &thief.worker_id.clone(), "stolen").await.expect_err("the token was given to another worker");
    assert_eq!(stolen.code(), tonic::Code::FailedPrecondition, "{stolen:?}");
    let mut bent = task.task_token.to_vec();
    bent.truncate(bent.len() - 1);
    owner.complete(&bent, &owner.worker_id.clone(), "bent").await.expect_err("a cut token is none");
    assert_eq!(handle.describe().await?.state, "RUNNING");

    // A decision that names things that do not exist is refused and the task is tried again.
    let cancel_nothing = v1::Command { kind: Some(v1::command::Kind::CancelTimer(v1::CancelTimerCommand { started_event_id: 4_000 })) };
    let request = v1::CompleteWorkflowTaskRequest {
        task_token: task.task_token.clone(),
        worker_id: owner.worker_id.clone(),
        commands: vec![cancel_nothing],
        ..v1::CompleteWorkflowTaskRequest::default()
    };
    let malformed = owner.client.complete_workflow_task(request).await.expect_err("there is no timer 4000");
    assert_eq!(malformed.code(), tonic::Code::InvalidArgument, "{malformed:?}");

    let again = owner.take_workflow_task("hands").await?;
    let stale = owner.complete(&task.task_token, &owner.worker_id.clone(), "stale").await.expect_err("the first dispatch is not the current one");
    assert_eq!(stale.code(), tonic::Code::FailedPrecondition, "{stale:?}");
    owner.complete(&again.task_token, &owner.worker_id.clone(), "right").await?;
    let twice = owner.complete(&again.task_token, &owner.worker_id.clone(), "twice").await.expect_err("the run has ended");
    assert_eq!(twice.code(), tonic::Code::FailedPrecondition, "{twice:?}");
    assert_eq!(world.result(&handle).await?, "right");
    Ok(())
}
