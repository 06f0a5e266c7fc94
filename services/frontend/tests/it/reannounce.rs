//! The new owner of a shard asks what workers are running.

use crate::grpc::token;
use crate::session::{Worker, hello, send_activity};
use crate::support::history::FakeHistory;
use crate::support::{Fleet, bind, refused, serve, soon};
use harvest_persistence::control::ServiceKind;
use harvest_proto::internal::v1::ReannounceCall;
use harvest_proto::internal::v1::frontend_service_client::FrontendServiceClient;
use harvest_proto::v1;
use harvest_proto::v1::server_message::Message as ToWorker;
use harvest_proto::v1::worker_message::Message as FromWorker;
use harvest_rpc::Reason;
use tonic::transport::Channel;

fn asking(fleet: &Fleet) -> FrontendServiceClient<Channel> {
    FrontendServiceClient::new(fleet.channel.clone())
}

fn call(shard_id: u32, epoch: u64, address: &str) -> ReannounceCall {
    ReannounceCall { shard_id, epoch, owner_address: address.to_owned(), owner_process_id: "history-2".to_owned() }
}

#[tokio::test]
async fn a_new_owner_is_told_what_was_announced_and_handed_over_and_not_what_was_answered() {
    let fleet = Fleet::start().await;
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    let stream = soon(fleet.matching.stream()).await;
    worker.send(FromWorker::Announce(v1::Announce { task_tokens: vec![token(Some(3)), token(Some(7))] })).await;
    assert!(matches!(worker.next().await.unwrap(), ToWorker::AnnounceReply(_)));
    worker.credit(0, 1).await;
    send_activity(&stream).await;
    assert!(matches!(worker.next().await.unwrap(), ToWorker::ActivityTask(_)));
    let outcome = Some(v1::close_activity_request::Outcome::Completed(v1::Payload::default()));
    let close = v1::CloseActivityRequest { task_token: token(Some(7)), worker_id: worker.worker_id.clone(), outcome, ..Default::default() };
    soon(fleet.workers().close_activity(close)).await.unwrap();

    // The old owner freezes with a call; a successor comes up.
    *fleet.history.frozen.lock().unwrap() = true;
    let beat = v1::HeartbeatRequest { task_token: token(Some(3)), worker_id: worker.worker_id.clone(), details: None };
    let mut workers = fleet.workers();
    let beating = harvest_runtime::spawn_owned("heartbeat", async move { workers.heartbeat(beat).await });
    soon(async {
        while fleet.history.calls_of("heartbeat").is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let second = FakeHistory::default();
    let (address, _task) = serve(bind().await.add_service(second.service()));
    fleet.directory.add(ServiceKind::History, "history-2", &address);
    fleet.directory.own(1, "history-2", &address);
    soon(asking(&fleet).reannounce(call(1, 4, &address))).await.unwrap();
    {
        let announced = second.announcements.lock().unwrap();
        let [only] = announced.as_slice() else { panic!("one session has one announcement: {announced:?}") };
        assert_eq!((only.shard_id, only.worker_id.as_str()), (1, worker.worker_id.as_str()));
        assert_eq!(only.task_tokens, [token(Some(3)), token(Some(5))]);
    }
    assert!(soon(beating).await.unwrap().unwrap().into_inner().cancel_requested, "the waiting call goes to the new owner");
    // The sessions run nothing of other shards.
    soon(asking(&fleet).reannounce(call(2, 4, &address))).await.unwrap();
    assert_eq!(second.announcements.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn attempts_are_announced_to_members_of_the_fleet_and_to_the_newest_owner_only() {
    let fleet = Fleet::start().await;
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    worker.send(FromWorker::Announce(v1::Announce { task_tokens: vec![token(Some(3))] })).await;
    assert!(matches!(worker.next().await.unwrap(), ToWorker::AnnounceReply(_)));
    let second = FakeHistory::default();
    let (address, _task) = serve(bind().await.add_service(second.service()));
    assert_eq!(refused(soon(asking(&fleet).reannounce(call(1, 4, &address))).await).reason, Reason::Unavailable, "nobody knows this process");
    fleet.directory.add(ServiceKind::History, "history-2", &address);
    // The leases say epoch 3.
    assert_eq!(refused(soon(asking(&fleet).reannounce(call(1, 2, &address))).await).reason, Reason::ShardNotOwned);
    assert!(second.announcements.lock().unwrap().is_empty());
    // An owner that does not take them has not heard of them.
    second.refuse([harvest_rpc::Error::new(Reason::Internal, "broken")]);
    assert_eq!(refused(soon(asking(&fleet).reannounce(call(1, 4, &address))).await).reason, Reason::Internal);
    // One that is only just coming up is asked again.
    second.refuse([crate::support::history::not_owned(None)]);
    soon(asking(&fleet).reannounce(call(1, 4, &address))).await.unwrap();
    assert_eq!(second.announcements.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_new_owner_is_told_of_activities_that_came_with_answers_to_decisions() {
    let fleet = Fleet::start().await;
    let worker = Worker::open(&fleet, hello()).await.unwrap();
    let second = FakeHistory::default();
    let (address, _task) = serve(bind().await.add_service(second.service()));
    fleet.directory.add(ServiceKind::History, "history-2", &address);
    *fleet.history.eager.lock().unwrap() = vec![token(Some(3)), token(Some(5))];
    let complete = v1::CompleteWorkflowTaskRequest { task_token: token(None), worker_id: worker.worker_id.clone(), ..Default::default() };
    let decided = soon(fleet.workers().complete_workflow_task(complete)).await.unwrap().into_inner();
    assert_eq!(decided.eager_activities.len(), 2);
    *fleet.history.eager.lock().unwrap() = vec![token(Some(7))];
    let outcome = Some(v1::close_activity_request::Outcome::Completed(v1::Payload::default()));
    let close = v1::CloseActivityRequest { task_token: token(Some(3)), worker_id: worker.worker_id.clone(), outcome, ..Default::default() };
    soon(fleet.workers().close_activity(close)).await.unwrap();
    soon(asking(&fleet).reannounce(call(1, 4, &address))).await.unwrap();
    let announced = second.announcements.lock().unwrap();
    assert_eq!(announced[0].task_tokens, [token(Some(5)), token(Some(7))]);
}
