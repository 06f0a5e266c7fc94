//! gRPC calls of clients and workers, good and bad.

use crate::support::history::{FakeHistory, RUN, not_owned};
use crate::support::{Fleet, bind, refused, serve, soon};
use harvest_ids::{Attempt, Epoch, EventId, WorkerId};
use harvest_proto::v1;
use harvest_rpc::{Error, Reason};
use harvest_workflow_core::input::TaskToken;
use harvest_workflow_core::record::Dispatch;

fn start(workflow_id: &str) -> v1::StartWorkflowRequest {
    v1::StartWorkflowRequest { workflow_type: "order".into(), workflow_id: workflow_id.into(), ..Default::default() }
}

fn run() -> Option<v1::WorkflowRef> {
    Some(v1::WorkflowRef { execution_id: RUN.into(), ..Default::default() })
}

pub fn token(activity_id: Option<u64>) -> bytes::Bytes {
    harvest_wire::token::encode(&TaskToken {
        execution_id: RUN.parse().unwrap(),
        activity_id: activity_id.map(EventId),
        attempt: Attempt(1),
        dispatch: Dispatch { epoch: Epoch(1), sequence: 1, worker_id: WorkerId::new("w").unwrap() },
    })
}

#[tokio::test]
async fn a_start_reaches_the_owner_with_everything_filled_in() {
    let fleet = Fleet::start().await;
    fleet.config.register("order", "default");
    let reply = soon(fleet.workflows().start_workflow(start(""))).await.unwrap().into_inner();
    assert!(reply.started_fresh && reply.warnings.is_empty(), "{reply:?}");
    assert_eq!((reply.execution_id.as_str(), reply.workflow_id.len()), (RUN, 32));
    let sent = fleet.history.starts.lock().unwrap()[0].clone();
    assert_eq!((sent.namespace.as_str(), sent.task_queue.as_str(), sent.workflow_id), ("default", "default", reply.workflow_id));
    assert_eq!(sent.request_id.len(), 32);
}

#[tokio::test]
async fn a_start_on_a_queue_that_nobody_serves_is_warned_about() {
    let fleet = Fleet::start().await;
    fleet.config.register("order", "default");
    let request = v1::StartWorkflowRequest { task_queue: "lonely".into(), ..start("1") };
    let reply = soon(fleet.workflows().start_workflow(request)).await.unwrap().into_inner();
    assert_eq!(reply.warnings, ["no live worker serves task queue \"lonely\": the run waits until one does"]);
}

#[tokio::test]
async fn an_unknown_type_is_refused_with_the_nearest_names_and_known_after_one_fresh_look() {
    let fleet = Fleet::start().await;
    let unknown = refused(soon(fleet.workflows().start_workflow(start("1"))).await);
    assert_eq!((unknown.reason, unknown.field.as_deref()), (Reason::UnknownWorkflowType, Some("workflow_type")));
    fleet.config.register("orders", "default");
    let unknown = refused(soon(fleet.workflows().start_workflow(start("1"))).await);
    assert!(unknown.message.ends_with("did you mean orders?"), "{}", unknown.message);
    fleet.config.register("order", "default");
    soon(fleet.workflows().start_workflow(start("1"))).await.unwrap();
}

#[tokio::test]
async fn without_the_config_service_an_unknown_type_is_unavailable_and_not_unknown() {
    let fleet = Fleet::start().await;
    fleet.directory.remove("config-1");
    soon(async {
        loop {
            let error = refused(fleet.workflows().start_workflow(start("1")).await);
            if error.reason == Reason::Unavailable {
                return;
            }
            assert_eq!(error.reason, Reason::UnknownWorkflowType);
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn bad_input_is_refused_with_the_field_and_what_is_allowed() {
    let fleet = Fleet::start().await;
    let cases: Vec<(v1::StartWorkflowRequest, &str, Reason)> = vec![
        (v1::StartWorkflowRequest { workflow_type: String::new(), ..start("1") }, "workflow_type", Reason::InvalidArgument),
        (start(&"x".repeat(256)), "workflow_id", Reason::InvalidArgument),
        (start("a\0b"), "workflow_id", Reason::InvalidArgument),
        (v1::StartWorkflowRequest { execution_timeout_ms: Some(0), ..start("1") }, "execution_timeout_ms", Reason::InvalidArgument),
        (v1::StartWorkflowRequest { conflict_policy: 77, ..start("1") }, "conflict_policy", Reason::InvalidArgument),
        (
            v1::StartWorkflowRequest { input: Some(v1::Payload { data: vec![b' '; 2 * 1024 * 1024 + 1].into(), encoding: String::new() }), ..start("1") },
            "input",
            Reason::PayloadTooLarge,
        ),
        (v1::StartWorkflowRequest { input: Some(v1::Payload { data: "{".into(), encoding: String::new() }), ..start("1") }, "input", Reason::InvalidArgument),
    ];
    for (request, field, reason) in cases {
        let error = refused(soon(fleet.workflows().start_workflow(request)).await);
        assert_eq!((error.field.as_deref(), error.reason), (Some(field), reason), "{error}");
    }
    let bad = v1::WorkflowRef { execution_id: "ffff0000-0000-8000-8000-000000000000".into(), ..Default::default() };
    let error = refused(soon(fleet.workflows().get_workflow(v1::GetWorkflowRequest { workflow: Some(bad) })).await);
    assert_eq!(error.field.as_deref(), Some("workflow.execution_id"));
    let garbage = v1::HeartbeatRequest { task_token: "nonsense".into(), worker_id: "w".into(), details: None };
    assert_eq!(refused(soon(fleet.workers().heartbeat(garbage)).await).field.as_deref(), Some("task_token"));
    assert!(fleet.history.calls.lock().unwrap().is_empty(), "nothing malformed reaches the shard's owner");
}

#[tokio::test]
async fn a_shard_that_moved_is_followed_by_its_hint_with_the_same_request_id() {
    let fleet = Fleet::start().await;
    let second = FakeHistory::default();
    let (address, _task) = serve(bind().await.add_service(second.service()));
    fleet.history.refuse([not_owned(Some(&address))]);
    let signal = v1::SignalWorkflowRequest { workflow: run(), signal_name: "pay".into(), ..Default::default() };
    assert!(soon(fleet.workflows().signal_workflow(signal)).await.unwrap().into_inner().signal_delivered);
    let (first, then) = (fleet.history.calls_of("signal_workflow"), second.calls_of("signal_workflow"));
    assert_eq!((first.len(), then.len()), (1, 1));
    assert_eq!(first[0], then[0]);
    assert_eq!(first[0].1.len(), 32);
}

#[tokio::test]
async fn an_unavailable_owner_is_asked_again_and_a_missing_one_is_waited_for() {
    let fleet = Fleet::start().await;
    fleet.history.refuse([Error::unavailable("starting"), not_owned(None), Error::unavailable("starting")]);
    let request = v1::GetWorkflowRequest { workflow: run() };
    soon(fleet.workflows().get_workflow(request.clone())).await.unwrap();
    assert_eq!(fleet.history.calls_of("get_workflow").len(), 4);
    // Slot 1 is shard 1.
    fleet.directory.disown(1);
    let mut hurried = tonic::Request::new(request);
    hurried.set_timeout(std::time::Duration::from_secs(1));
    fleet.history.refuse([not_owned(None)]);
    let error = refused(soon(fleet.workflows().get_workflow(hurried)).await);
    assert!(matches!(error.reason, Reason::Unavailable | Reason::DeadlineExceeded), "{error}");
}

#[tokio::test]
async fn calls_to_a_frozen_owner_go_on_with_its_successor() {
    let fleet = Fleet::start().await;
    *fleet.history.frozen.lock().unwrap() = true;
    let second = FakeHistory::default();
    let (address, _task) = serve(bind().await.add_service(second.service()));
    let mut client = fleet.workflows();
    let called = fleet.history.called.clone();
    let waiting = harvest_runtime::spawn("call", async move { client.get_workflow(v1::GetWorkflowRequest { workflow: run() }).await });
    soon(async {
        let notified = called.notified();
        if fleet.history.calls_of("get_workflow").is_empty() {
            notified.await;
        }
    })
    .await;
    fleet.directory.own(1, "history-2", &address);
    soon(waiting).await.unwrap().unwrap();
    assert_eq!(second.calls_of("get_workflow").len(), 1);
}

#[tokio::test]
async fn a_final_refusal_of_the_owner_passes_unchanged() {
    let fleet = Fleet::start().await;
    let closed = Error::new(Reason::WorkflowClosed, "the workflow run is closed (COMPLETED)").with("state", "COMPLETED");
    fleet.history.refuse([closed.clone()]);
    let signal = v1::SignalWorkflowRequest { workflow: run(), signal_name: "pay".into(), ..Default::default() };
    assert_eq!(refused(soon(fleet.workflows().signal_workflow(signal)).await), closed);
}

#[tokio::test]
async fn who_sends_more_than_an_owner_has_room_for_is_told_so_at_once() {
    let fleet = Fleet::start().await;
    fleet.history.refuse([Error::new(Reason::Overloaded, "shard 1 has too much to do").with("limit", "shard.inbox_share")]);
    let signal = v1::SignalWorkflowRequest { workflow: run(), signal_name: "go".into(), ..Default::default() };
    let error = refused(soon(fleet.workflows().signal_workflow(signal.clone())).await);
    assert_eq!((error.reason, error.metadata["limit"].as_str()), (Reason::Overloaded, "shard.inbox_share"));
    assert!(error.retry_after.is_some());
    assert_eq!(fleet.history.calls_of("signal_workflow").len(), 1, "the frontend does not hold the call back and try again");
    soon(fleet.workflows().signal_workflow(signal)).await.unwrap();
}

#[tokio::test]
async fn answers_of_workers_go_to_the_shard_of_their_token() {
    let fleet = Fleet::start().await;
    let mut workers = fleet.workers();
    let complete = v1::CompleteWorkflowTaskRequest { task_token: token(None), worker_id: "w".into(), ..Default::default() };
    soon(workers.complete_workflow_task(complete)).await.unwrap();
    let outcome = Some(v1::close_activity_request::Outcome::Completed(v1::Payload::default()));
    let close = v1::CloseActivityRequest { task_token: token(Some(3)), worker_id: "w".into(), outcome, ..Default::default() };
    soon(workers.close_activity(close)).await.unwrap();
    let beat = v1::HeartbeatRequest { task_token: token(Some(3)), worker_id: "w".into(), details: None };
    assert!(soon(workers.heartbeat(beat)).await.unwrap().into_inner().cancel_requested);
    let shards: Vec<u32> = fleet.history.calls.lock().unwrap().iter().map(|(_, shard, _)| *shard).collect();
    assert_eq!(shards, [1, 1, 1]);
    let of_a_workflow_task = v1::HeartbeatRequest { task_token: token(None), worker_id: "w".into(), details: None };
    soon(workers.heartbeat(of_a_workflow_task)).await.unwrap();
    let outcome = Some(v1::close_activity_request::Outcome::Completed(v1::Payload::default()));
    let of_another_kind = v1::CloseActivityRequest { task_token: token(None), worker_id: "w".into(), outcome, ..Default::default() };
    assert_eq!(refused(soon(workers.close_activity(of_another_kind)).await).field.as_deref(), Some("task_token"));
}

#[tokio::test]
async fn operators_see_workers_shards_and_limits() {
    let fleet = Fleet::start().await;
    fleet.config.register("order", "default");
    let mut admin = fleet.admin();
    let workers = soon(admin.list_workers(v1::ListWorkersRequest::default())).await.unwrap().into_inner().workers;
    assert_eq!((workers[0].worker_id.as_str(), workers[0].namespace.as_str()), ("worker-0", "default"));
    let shards = soon(admin.list_shards(v1::ListShardsRequest {})).await.unwrap().into_inner().shards;
    assert_eq!((shards.len(), shards[3].slots, shards[3].owner.as_str(), shards[3].epoch), (4, 1024, "history-1", 3));
    assert!((1..=2_000).contains(&shards[3].lease_remaining_ms), "{}", shards[3].lease_remaining_ms);
    let limits = soon(admin.get_fleet_limits(v1::GetFleetLimitsRequest {})).await.unwrap().into_inner();
    assert_eq!((limits.limits.unwrap().max_workflow_execution_timeout_ms, limits.version.unwrap().number), (Some(3_600_000), 4));
    let patch = v1::PatchFleetLimitsRequest {
        update_mask: vec!["max_workflow_execution_timeout_ms".into()],
        limits: Some(v1::FleetLimits::default()),
        ..Default::default()
    };
    assert_eq!(soon(admin.patch_fleet_limits(patch)).await.unwrap().into_inner().pending, [2]);
}

#[tokio::test]
async fn a_frontend_joins_the_fleet_and_leaves_it_in_order() {
    let fleet = Fleet::start().await;
    soon(fleet.admin().list_shards(v1::ListShardsRequest {})).await.unwrap();
    assert!(fleet.health.ready());
    assert_eq!(fleet.directory.frontends(), 1);
    fleet.shutdown.cancel();
    let Fleet { running, directory, health, channel, .. } = fleet;
    drop(channel);
    soon(running).await.unwrap();
    assert_eq!((directory.frontends(), health.ready()), (0, false));
}

#[tokio::test]
async fn a_wait_for_a_result_ends_with_the_frontend_and_is_to_be_made_elsewhere() {
    let fleet = Fleet::start_with(&[("DRAIN_TIMEOUT_MS", "600000")]).await;
    *fleet.history.frozen.lock().unwrap() = true;
    let (mut client, called) = (fleet.workflows(), fleet.history.called.clone());
    let request = v1::GetResultRequest { workflow: run(), wait_ms: 60_000 };
    let waiting = harvest_runtime::spawn("call", async move { client.get_result(request).await });
    soon(async {
        let notified = called.notified();
        if fleet.history.calls_of("get_result").is_empty() {
            notified.await;
        }
    })
    .await;
    fleet.shutdown.cancel();
    let error = refused(soon(waiting).await.unwrap());
    assert_eq!((error.reason, error.retryable()), (Reason::Unavailable, true));
    soon(fleet.running).await.unwrap();
}
