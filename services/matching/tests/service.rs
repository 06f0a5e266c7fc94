//! The whole service over gRPC, with a directory store in memory and an owner that answers from a table.

#![allow(clippy::unwrap_used)] // a test may panic

use async_trait::async_trait;
use harvest_ids::{ExecutionId, Slot, Timestamp};
use harvest_matching::config::Config;
use harvest_matching::{Deps, Owners, build_with};
use harvest_persistence::embedded::EmbeddedStore;
use harvest_proto::internal::v1::matching_service_client::MatchingServiceClient;
use harvest_proto::internal::v1::take_task_reply::Task;
use harvest_proto::internal::v1::{
    CloseActivityCall, Gone, Offer, OfferHello, OfferMessage, OfferReply, TakeTaskCall, TakeTaskReply, TaskKind, WorkHello, WorkMessage, offer_message,
    work_message,
};
use harvest_proto::v1::{ActivityTask, Credit, ServerMessage, WorkflowTask, server_message};
use harvest_rpc::client::Channels;
use harvest_rpc::{Error, Network, Reason};
use harvest_runtime::config::load;
use harvest_runtime::{Health, SystemClock, SystemIds};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Gives every task unless told otherwise, and notes what it is asked.
#[derive(Default)]
struct FakeOwner {
    asked: Mutex<Vec<(String, TakeTaskCall)>>,
    /// Answers of the next calls, first to last; afterwards every task is there.
    refusals: Mutex<Vec<Result<Task, Error>>>,
    released: Mutex<Vec<CloseActivityCall>>,
    releasing: Notify,
    /// While set, answers wait for it.
    gate: Option<Arc<Notify>>,
    waiting: Notify,
}

#[async_trait]
impl Owners for FakeOwner {
    async fn take_task(&self, address: &str, call: TakeTaskCall) -> Result<TakeTaskReply, Error> {
        self.asked.lock().unwrap().push((address.to_owned(), call.clone()));
        if let Some(gate) = &self.gate {
            self.waiting.notify_one();
            gate.notified().await;
        }
        let refusal = {
            let mut refusals = self.refusals.lock().unwrap();
            (!refusals.is_empty()).then(|| refusals.remove(0))
        };
        let task_token = call.execution_id.clone();
        let task = match refusal {
            Some(refusal) => refusal?,
            None if call.activity_id == 0 => Task::WorkflowTask(WorkflowTask { task_token, ..WorkflowTask::default() }),
            None => Task::ActivityTask(ActivityTask { task_token, activity_id: call.activity_id, ..ActivityTask::default() }),
        };
        Ok(TakeTaskReply { task: Some(task) })
    }

    async fn release_activity(&self, _: &str, call: CloseActivityCall) -> Result<(), Error> {
        self.released.lock().unwrap().push(call);
        self.releasing.notify_one();
        Ok(())
    }
}

struct World {
    client: MatchingServiceClient<Channel>,
    owner: Arc<FakeOwner>,
    stop: CancellationToken,
}

struct History {
    offers: mpsc::Sender<OfferMessage>,
    replies: tonic::Streaming<OfferReply>,
}

struct Worker {
    messages: mpsc::Sender<WorkMessage>,
    tasks: tonic::Streaming<ServerMessage>,
}

fn run(number: u64) -> bytes::Bytes {
    let id = ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(0), number);
    bytes::Bytes::copy_from_slice(id.as_uuid().as_bytes())
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("within 20 s")
}

impl World {
    async fn start(owner: FakeOwner) -> Self {
        let store = Arc::new(EmbeddedStore::in_memory().unwrap());
        store.migrate(1).await.unwrap();
        let variables = [
            ("HARVEST_GRPC_LISTEN", "127.0.0.1:0"),
            ("HARVEST_DATABASE_URL", "postgres://unused"),
            ("HARVEST_OFFERS_PER_QUEUE", "7"),
            ("HARVEST_MAX_SESSIONS", "1"),
        ];
        let config: Config = load(None, variables.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap().settings;
        let deps = Deps { directory: store, network: Network::tcp(), clock: Arc::new(SystemClock::new()), ids: Arc::new(SystemIds), health: Health::new() };
        let owner = Arc::new(owner);
        let service = build_with(&config, deps, owner.clone()).await.unwrap();
        let client = MatchingServiceClient::new(Channels::default().get(service.address()).unwrap());
        let stop = CancellationToken::new();
        drop(harvest_runtime::spawn("matching", service.run(stop.clone())));
        Self { client, owner, stop }
    }

    async fn history(&self) -> History {
        let (offers, receiver) = mpsc::channel(16);
        let hello = OfferHello { process_id: "h".to_owned(), address: "http://owner".to_owned() };
        offers.send(OfferMessage { message: Some(offer_message::Message::Hello(hello)) }).await.unwrap();
        let mut replies = within(self.client.clone().offer(ReceiverStream::new(receiver))).await.unwrap().into_inner();
        let window = within(replies.message()).await.unwrap().unwrap().window.unwrap();
        assert_eq!(window.offers_per_queue, 7);
        History { offers, replies }
    }

    async fn worker(&self, name: &str) -> Worker {
        let (messages, receiver) = mpsc::channel(16);
        let hello = WorkHello { namespace: "default".to_owned(), worker_id: name.to_owned() };
        messages.send(WorkMessage { message: Some(work_message::Message::Hello(hello)) }).await.unwrap();
        let tasks = within(self.client.clone().work(ReceiverStream::new(receiver))).await.unwrap().into_inner();
        Worker { messages, tasks }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl History {
    async fn offer(&self, number: u64, kind: TaskKind, activity_id: u64) {
        let offer = Offer {
            shard_id: 3,
            epoch: 9,
            namespace: "default".to_owned(),
            task_queue: "orders".to_owned(),
            kind: kind.into(),
            execution_id: run(number),
            activity_id,
            ..Offer::default()
        };
        self.offers.send(OfferMessage { message: Some(offer_message::Message::Offer(offer)) }).await.unwrap();
    }
}

impl Worker {
    async fn credit(&self, workflow_tasks: u32, activity_tasks: u32) {
        let credit = Credit { task_queue: "orders".to_owned(), workflow_tasks, activity_tasks };
        self.messages.send(WorkMessage { message: Some(work_message::Message::Credit(credit)) }).await.unwrap();
    }

    async fn next(&mut self) -> server_message::Message {
        within(self.tasks.message()).await.unwrap().unwrap().message.unwrap()
    }

    async fn next_workflow_task(&mut self) -> bytes::Bytes {
        match self.next().await {
            server_message::Message::WorkflowTask(task) => task.task_token,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_offer_and_a_credit_become_a_task_taken_from_its_owner() {
    let world = World::start(FakeOwner::default()).await;
    let history = world.history().await;
    let mut worker = world.worker("w").await;
    history.offer(1, TaskKind::Workflow, 0).await;
    worker.credit(1, 1).await;
    assert_eq!(worker.next_workflow_task().await, run(1));
    history.offer(1, TaskKind::Activity, 7).await;
    assert!(matches!(worker.next().await, server_message::Message::ActivityTask(task) if task.activity_id == 7));
    let asked = world.owner.asked.lock().unwrap().clone();
    let (address, call) = &asked[0];
    assert_eq!((address.as_str(), call.shard_id, call.epoch, call.worker_id.as_str()), ("http://owner", 3, 9, "w"));
}

#[tokio::test]
async fn a_task_that_is_gone_or_in_other_hands_costs_no_credit_and_one_that_could_not_be_taken_is_tried_again() {
    let owner = FakeOwner::default();
    *owner.refusals.lock().unwrap() =
        vec![Ok(Task::Gone(Gone {})), Err(Error::not_owned(harvest_ids::ShardId(3), None)), Err(Error::new(Reason::Unavailable, "busy"))];
    let world = World::start(owner).await;
    let history = world.history().await;
    let mut worker = world.worker("w").await;
    worker.credit(2, 0).await;
    for number in 1..=4 {
        history.offer(number, TaskKind::Workflow, 0).await;
    }
    let tokens = [worker.next_workflow_task().await, worker.next_workflow_task().await];
    let asked: Vec<_> = world.owner.asked.lock().unwrap().iter().map(|(_, call)| call.execution_id.clone()).collect();
    // Two are given for good; of the four, two were refused for good; the one that failed is asked for once more, sooner or later.
    assert_eq!(asked.len(), 5, "{asked:?}");
    assert!(tokens.iter().all(|token| asked.contains(token)));
    assert_ne!(tokens[0], tokens[1]);
}

#[tokio::test]
async fn an_attempt_whose_worker_left_meanwhile_is_given_back() {
    let gate = Arc::new(Notify::new());
    let world = World::start(FakeOwner { gate: Some(gate.clone()), ..FakeOwner::default() }).await;
    let history = world.history().await;
    let worker = world.worker("w").await;
    worker.credit(0, 1).await;
    history.offer(1, TaskKind::Activity, 7).await;
    within(world.owner.waiting.notified()).await;
    drop(worker);
    history.offer(2, TaskKind::Activity, 8).await;
    // There is room for one session: once another one is served, this one is gone.
    let _other = within(async {
        loop {
            let mut other = world.worker("other").await;
            other.credit(0, 1).await;
            tokio::select! {
                () = world.owner.waiting.notified() => return other,
                refused = other.tasks.message() => assert_eq!(Error::from(refused.unwrap_err()).reason, Reason::LimitReached),
            }
        }
    })
    .await;
    gate.notify_waiters();
    within(world.owner.releasing.notified()).await;
    let released = world.owner.released.lock().unwrap().clone();
    assert_eq!(released[0].request.as_ref().unwrap().worker_id, "w");
}

#[tokio::test]
async fn a_stream_that_breaks_the_protocol_is_refused_by_name() {
    let world = World::start(FakeOwner::default()).await;
    let mut history = world.history().await;
    // A malformed offer does not break the stream, a good one after it works.
    let bad = Offer { kind: TaskKind::Workflow.into(), task_queue: String::new(), execution_id: run(1), namespace: "default".to_owned(), ..Offer::default() };
    history.offers.send(OfferMessage { message: Some(offer_message::Message::Offer(bad)) }).await.unwrap();
    history.offer(2, TaskKind::Workflow, 0).await;
    let mut worker = world.worker("w").await;
    worker.credit(1, 0).await;
    assert_eq!(worker.next_workflow_task().await, run(2));

    let credit = Credit { task_queue: String::new(), workflow_tasks: 1, activity_tasks: 0 };
    worker.messages.send(WorkMessage { message: Some(work_message::Message::Credit(credit)) }).await.unwrap();
    let error = Error::from(within(worker.tasks.message()).await.unwrap_err());
    assert_eq!((error.reason, error.field.as_deref()), (Reason::InvalidArgument, Some("credit.task_queue")));

    world.stop.cancel();
    let error = Error::from(within(history.replies.message()).await.unwrap_err());
    assert_eq!(error.reason, Reason::Unavailable);
}
