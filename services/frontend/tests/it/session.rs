//! Streams of workers.

use crate::grpc::token;
use crate::support::matching::{FakeMatching, WorkStream};
use crate::support::{Fleet, bind, refused, serve, soon};
use harvest_persistence::control::ServiceKind;
use harvest_proto::internal::v1::work_message::Message as ToMatching;
use harvest_proto::v1;
use harvest_proto::v1::server_message::Message as ToWorker;
use harvest_proto::v1::worker_message::Message as FromWorker;
use harvest_rpc::{Error, Reason};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

pub struct Worker {
    to: mpsc::Sender<v1::WorkerMessage>,
    from: Streaming<v1::ServerMessage>,
    pub worker_id: String,
}

pub fn hello() -> v1::Hello {
    v1::Hello {
        task_queues: vec!["default".into()],
        workflow_types: vec![v1::WorkflowTypeInfo { name: "order".into(), ..v1::WorkflowTypeInfo::default() }],
        ..Default::default()
    }
}

impl Worker {
    pub async fn open(fleet: &Fleet, hello: v1::Hello) -> Result<Self, tonic::Status> {
        let (to, receiver) = mpsc::channel(16);
        to.send(v1::WorkerMessage { message: Some(FromWorker::Hello(hello)) }).await.unwrap();
        let from = soon(fleet.workers().open_session(ReceiverStream::new(receiver))).await?.into_inner();
        let mut worker = Self { to, from, worker_id: String::new() };
        let ToWorker::Welcome(welcome) = worker.next().await? else { panic!("the welcome comes first") };
        assert_eq!((welcome.announce_interval_ms, welcome.announce_timeout_ms), (5_000, 8_000));
        worker.worker_id = welcome.worker_id;
        Ok(worker)
    }

    pub async fn send(&self, message: FromWorker) {
        self.to.send(v1::WorkerMessage { message: Some(message) }).await.unwrap();
    }

    pub async fn credit(&self, workflow_tasks: u32, activity_tasks: u32) {
        self.send(FromWorker::Credit(v1::Credit { task_queue: "default".into(), workflow_tasks, activity_tasks })).await;
    }

    pub async fn next(&mut self) -> Result<ToWorker, tonic::Status> {
        soon(self.from.message()).await.map(|message| message.expect("the stream goes on").message.unwrap())
    }

    /// The refusal that ends the session.
    async fn ended(&mut self) -> Error {
        loop {
            if let Err(status) = self.next().await {
                return status.into();
            }
        }
    }
}

fn credit(message: Option<ToMatching>) -> (u32, u32) {
    match message {
        Some(ToMatching::Credit(credit)) => (credit.workflow_tasks, credit.activity_tasks),
        other => panic!("credit comes here, not {other:?}"),
    }
}

pub async fn send_activity(stream: &WorkStream) {
    let task = v1::ActivityTask { task_token: token(Some(5)), task_queue: "default".into(), activity_id: 5, ..Default::default() };
    stream.tasks.send(Ok(v1::ServerMessage { message: Some(ToWorker::ActivityTask(task)) })).await.unwrap();
}

#[tokio::test]
async fn a_session_is_known_to_the_fleet_before_it_is_welcomed_and_forgotten_when_it_ends() {
    let fleet = Fleet::start().await;
    let worker = Worker::open(&fleet, hello()).await.unwrap();
    assert_eq!(fleet.config.sessions.lock().unwrap()[0].worker_id, worker.worker_id);
    let start = v1::StartWorkflowRequest { workflow_type: "order".into(), ..Default::default() };
    assert!(soon(fleet.workflows().start_workflow(start)).await.unwrap().into_inner().warnings.is_empty());
    let worker_id = worker.worker_id.clone();
    drop(worker);
    soon(async {
        while !fleet.config.ended.lock().unwrap().contains(&worker_id) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_start_is_eager_only_for_a_worker_whose_stream_is_here_and_that_serves_the_run() {
    let fleet = Fleet::start().await;
    let elsewhere = Worker::open(&fleet, v1::Hello { namespace: "elsewhere".into(), ..hello() }).await.unwrap();
    let worker = Worker::open(&fleet, hello()).await.unwrap();
    let start = |worker_id: &str| v1::StartWorkflowRequest { workflow_type: "order".into(), eager_worker_id: worker_id.into(), ..Default::default() };
    let mut not_given = vec![start(""), start("nobody"), start(&elsewhere.worker_id)];
    not_given.push(v1::StartWorkflowRequest { task_queue: "other".into(), ..start(&worker.worker_id) });
    for request in not_given {
        let answer = soon(fleet.workflows().start_workflow(request.clone())).await.unwrap().into_inner();
        assert_eq!((answer.state.as_str(), answer.eager_workflow_task), ("RUNNING", None), "{request:?}");
    }
    let given = soon(fleet.workflows().start_workflow(start(&worker.worker_id))).await.unwrap().into_inner();
    assert!(given.eager_workflow_task.is_some());
    let handed: Vec<String> = fleet.history.starts.lock().unwrap().iter().map(|start| start.eager_worker_id.clone()).collect();
    assert_eq!(handed, ["", "", "", "", &worker.worker_id]);
    let bad = soon(fleet.workflows().start_workflow(start("\0"))).await.unwrap_err();
    assert_eq!(Error::from(bad).field.as_deref(), Some("eager_worker_id"));
}

#[tokio::test]
async fn credit_goes_to_matching_and_tasks_come_back() {
    let fleet = Fleet::start().await;
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    let mut stream = soon(fleet.matching.stream()).await;
    assert_eq!((stream.hello.namespace.as_str(), &stream.hello.worker_id), ("default", &worker.worker_id));
    worker.credit(2, 3).await;
    assert_eq!(credit(soon(stream.next()).await), (2, 3));
    send_activity(&stream).await;
    assert!(matches!(worker.next().await.unwrap(), ToWorker::ActivityTask(task) if task.activity_id == 5));
    worker.send(FromWorker::Drain(v1::Drain {})).await;
    assert!(matches!(soon(stream.next()).await, Some(ToMatching::Drain(_))));
    // What was on its way still comes; then the worker is told that nothing is.
    send_activity(&stream).await;
    assert!(matches!(worker.next().await.unwrap(), ToWorker::ActivityTask(task) if task.activity_id == 5));
    assert!(soon(stream.next()).await.is_none());
    drop(stream);
    assert!(matches!(worker.next().await.unwrap(), ToWorker::Drained(_)));
    worker.send(FromWorker::Announce(v1::Announce::default())).await;
    assert!(matches!(worker.next().await.unwrap(), ToWorker::AnnounceReply(_)), "the stream goes on");
}

#[tokio::test]
async fn after_a_broken_stream_only_unused_credit_is_granted_again() {
    let fleet = Fleet::start().await;
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    let mut stream = soon(fleet.matching.stream()).await;
    worker.credit(2, 3).await;
    assert_eq!(credit(soon(stream.next()).await), (2, 3));
    send_activity(&stream).await;
    worker.next().await.unwrap();
    stream.tasks.send(Err(tonic::Status::unavailable("killed"))).await.unwrap();
    drop(stream);
    let mut again = soon(fleet.matching.stream()).await;
    assert_eq!(credit(soon(again.next()).await), (2, 2));
}

#[tokio::test]
async fn when_a_matching_process_leaves_its_queues_are_served_by_another() {
    let fleet = Fleet::start().await;
    let worker = Worker::open(&fleet, hello()).await.unwrap();
    let mut stream = soon(fleet.matching.stream()).await;
    worker.credit(1, 1).await;
    assert_eq!(credit(soon(stream.next()).await), (1, 1));
    let second = FakeMatching::default();
    let (address, _task) = serve(bind().await.add_service(second.service()));
    fleet.directory.add(ServiceKind::Matching, "matching-2", &address);
    fleet.directory.remove("matching-1");
    // The old process is told that its credit is void before the new one gets it.
    assert!(matches!(soon(stream.next()).await, Some(ToMatching::Drain(_))));
    assert!(soon(stream.next()).await.is_none());
    drop(stream);
    let mut moved = soon(second.stream()).await;
    assert_eq!(credit(soon(moved.next()).await), (1, 1));
}

#[tokio::test]
async fn announcements_go_to_the_owners_and_an_unreachable_one_gives_no_answer() {
    let fleet = Fleet::start().await;
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    worker.send(FromWorker::Announce(v1::Announce { task_tokens: vec![token(Some(5)), token(Some(7)), "garbage".into()] })).await;
    let ToWorker::AnnounceReply(reply) = worker.next().await.unwrap() else { panic!("the reply comes") };
    assert_eq!(reply.cancel_requested, [token(Some(5))]);
    assert_eq!(reply.lost, ["garbage"]);
    {
        let announced = fleet.history.announcements.lock().unwrap();
        assert_eq!((announced[0].shard_id, &announced[0].worker_id, announced[0].task_tokens.len()), (1, &worker.worker_id, 2));
    }
    fleet.history.refuse([Error::new(Reason::Internal, "broken")]);
    worker.send(FromWorker::Announce(v1::Announce { task_tokens: vec![token(Some(5))] })).await;
    let ToWorker::AnnounceReply(reply) = worker.next().await.unwrap() else { panic!("the reply comes") };
    assert!(reply.cancel_requested.is_empty() && reply.lost.is_empty(), "{reply:?}");
}

#[tokio::test]
async fn a_worker_that_comes_again_keeps_its_session_and_the_old_stream_ends() {
    let fleet = Fleet::start().await;
    let mut first = Worker::open(&fleet, hello()).await.unwrap();
    let again = v1::Hello { resume_worker_id: first.worker_id.clone(), ..hello() };
    let second = Worker::open(&fleet, again).await.unwrap();
    assert_eq!(second.worker_id, first.worker_id);
    assert_eq!(first.ended().await.reason, Reason::Cancelled);
}

#[tokio::test]
async fn a_session_is_not_taken_over_from_another_namespace_or_by_an_invented_id() {
    let fleet = Fleet::start().await;
    let mut victim = Worker::open(&fleet, hello()).await.unwrap();
    let elsewhere = v1::Hello { namespace: "elsewhere".into(), resume_worker_id: victim.worker_id.clone(), ..hello() };
    let error = refused(Worker::open(&fleet, elsewhere).await.map(|worker| worker.worker_id));
    assert_eq!((error.reason, error.field.as_deref()), (Reason::InvalidArgument, Some("resume_worker_id")));
    for invented in ["zzz".to_owned(), "z".repeat(32), victim.worker_id.to_uppercase() + "0"] {
        let error = refused(Worker::open(&fleet, v1::Hello { resume_worker_id: invented, ..hello() }).await.map(|worker| worker.worker_id));
        assert_eq!(error.field.as_deref(), Some("resume_worker_id"));
    }
    let mut stream = soon(fleet.matching.stream()).await;
    victim.credit(0, 1).await;
    assert_eq!(credit(stream.next().await), (0, 1));
    send_activity(&stream).await;
    assert!(matches!(victim.next().await.unwrap(), ToWorker::ActivityTask(_)), "the session goes on");
}

#[tokio::test]
async fn a_session_that_breaks_the_protocol_is_ended_with_the_reason() {
    let fleet = Fleet::start().await;
    let nothing = v1::Hello { task_queues: Vec::new(), ..hello() };
    assert_eq!(refused(Worker::open(&fleet, nothing).await.map(|worker| worker.worker_id)).field.as_deref(), Some("task_queues"));
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    worker.send(FromWorker::Credit(v1::Credit { task_queue: "other".into(), workflow_tasks: 1, activity_tasks: 1 })).await;
    assert_eq!(worker.ended().await.field.as_deref(), Some("credit.task_queue"));
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    worker.credit(10_001, 0).await;
    assert_eq!(worker.ended().await.field.as_deref(), Some("credit"));
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    worker.send(FromWorker::Hello(hello())).await;
    assert_eq!(worker.ended().await.field.as_deref(), Some("hello"));
}

#[tokio::test]
async fn sessions_end_with_the_frontend_and_their_workers_are_told_to_go_elsewhere() {
    let fleet = Fleet::start().await;
    let mut worker = Worker::open(&fleet, hello()).await.unwrap();
    fleet.shutdown.cancel();
    let end = worker.ended().await;
    assert_eq!((end.reason, end.message.as_str()), (Reason::Unavailable, "this frontend is shutting down: connect to another"));
    drop(worker);
    let Fleet { running, channel, .. } = fleet;
    drop(channel);
    soon(running).await.unwrap();
}

#[tokio::test]
async fn tasks_that_did_not_reach_a_worker_that_went_away_are_given_back_at_once() {
    const TASKS: usize = 40;
    // 2 MiB that the worker's side takes unread, and what waits to be written.
    const IN_THE_CONNECTION: usize = 8;
    let fleet = Fleet::start().await;
    let worker = Worker::open(&fleet, hello()).await.unwrap();
    let mut stream = soon(fleet.matching.stream()).await;
    worker.credit(0, 100).await;
    assert_eq!(credit(soon(stream.next()).await), (0, 100));
    // The worker reads nothing: what its connection does not hold waits in the frontend and in the stream to it.
    let sending = async {
        for _ in 0..TASKS {
            let input = Some(v1::Payload { data: vec![b'1'; 500_000].into(), encoding: String::new() });
            let task = v1::ActivityTask { task_token: token(Some(5)), task_queue: "default".into(), activity_id: 5, input, ..Default::default() };
            stream.tasks.send(Ok(v1::ServerMessage { message: Some(ToWorker::ActivityTask(task)) })).await.unwrap();
        }
    };
    soon(sending).await;
    drop(worker);
    // Matching ends its stream when it is told that nobody takes tasks any more.
    soon(async { while stream.next().await.is_some() {} }).await;
    drop(stream);
    let given_back = async {
        // Nobody can tell whether those in the connection have arrived.
        while fleet.history.calls_of("close_activity").len() < TASKS - IN_THE_CONNECTION {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(5), given_back).await.expect("long before anybody misses them");
}
