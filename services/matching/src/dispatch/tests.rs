//! What is taken from owners, and when.

use super::*;
use crate::api::Tasks;
use crate::state::OfferKey;
use async_trait::async_trait;
use harvest_ids::{Epoch, ExecutionId, ShardId, Slot, Timestamp};
use harvest_proto::internal::v1::TakeTaskReply;
use harvest_runtime::SystemClock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Gives every task, of so many bytes, and counts them.
struct Giver {
    bytes: usize,
    asked: AtomicUsize,
    asking: Notify,
    released: Mutex<Vec<CloseActivityCall>>,
}

#[async_trait]
impl Owners for Giver {
    async fn take_task(&self, _: &str, call: TakeTaskCall) -> Result<TakeTaskReply, Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.asking.notify_one();
        let input = v1::Payload { data: vec![b'1'; self.bytes].into(), encoding: String::new() };
        let task = v1::ActivityTask { task_token: call.execution_id, input: Some(input), ..v1::ActivityTask::default() };
        Ok(TakeTaskReply { task: Some(Task::ActivityTask(task)) })
    }

    async fn release_activity(&self, _: &str, call: CloseActivityCall) -> Result<(), Error> {
        lock(&self.released).push(call);
        self.asking.notify_one();
        Ok(())
    }
}

struct World {
    dispatcher: Dispatcher,
    owner: Arc<Giver>,
    source: SourceId,
    tasks: mpsc::Receiver<Carried>,
}

impl World {
    /// One worker with room for many tasks, whose stream has so many places.
    fn new(places: usize, max_task_bytes: usize, bytes: usize) -> Self {
        let owner = Arc::new(Giver { bytes, asked: AtomicUsize::new(0), asking: Notify::new(), released: Mutex::default() });
        let bounds = Bounds { offers_per_queue: 100, max_offers: 1_000, max_takes: 100, max_task_bytes, max_sessions: 1 };
        let dispatcher = Dispatcher::new(bounds, owner.clone(), Arc::new(SystemClock::new()));
        let source = dispatcher.add_source("http://owner".to_owned());
        let (output, tasks) = mpsc::channel(places);
        let session = dispatcher.add_session(Namespace::default(), WorkerId::new("w").unwrap(), output).unwrap();
        dispatcher.credit(session, &TaskQueue::default(), Class::Activity, 50).unwrap();
        Self { dispatcher, owner, source, tasks }
    }

    fn offer(&self, number: u64) {
        self.dispatcher.offer(Offer {
            key: OfferKey {
                execution_id: ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(0), number),
                item: Item::Activity(harvest_ids::EventId(3)),
            },
            shard_id: ShardId(1),
            epoch: Epoch(1),
            namespace: Namespace::default(),
            task_queue: TaskQueue::default(),
            sticky: None,
            sticky_timeout: Duration::ZERO,
            source: self.source,
            arrival: 0,
            arrived: Duration::ZERO,
            failures: 0,
        });
    }

    /// How many tasks were taken once nothing can go on.
    async fn asked(&self) -> usize {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        self.owner.asked.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_stays_with_its_owner_until_its_workers_stream_has_a_place() {
    let mut world = World::new(2, 1_000_000, 10);
    (1..=5).for_each(|number| world.offer(number));
    assert_eq!(world.asked().await, 2);
    assert!(world.tasks.recv().await.unwrap().message.is_ok());
    assert_eq!(world.asked().await, 3);
    for _ in 0..4 {
        assert!(world.tasks.recv().await.unwrap().message.is_ok());
    }
    assert_eq!(world.asked().await, 5);
}

#[tokio::test(start_paused = true)]
async fn large_tasks_wait_for_their_part_of_the_bytes() {
    let mut world = World::new(10, 1_000_000, 300_000);
    (1..=5).for_each(|number| world.offer(number));
    assert_eq!(world.asked().await, 5);
    assert_eq!(world.tasks.len(), 3, "a fourth would be more than there is room for");
    let first = world.tasks.recv().await.unwrap();
    world.asked().await;
    assert_eq!(world.tasks.len(), 2, "it is still being sent");
    drop(first);
    world.asked().await;
    assert_eq!(world.tasks.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_session_more_than_there_may_be_is_told_to_come_again() {
    let world = World::new(1, 1_000_000, 1);
    let refused = world.dispatcher.add_session(Namespace::default(), WorkerId::new("x").unwrap(), mpsc::channel(1).0).unwrap_err();
    assert_eq!((refused.reason, refused.metadata["limit"].as_str()), (Reason::Overloaded, "max_sessions"));
    assert!(refused.retry_after.is_some());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wait_in_a_stream_that_breaks_are_given_back() {
    let world = World::new(3, 1_000_000, 10);
    (1..=5).for_each(|number| world.offer(number));
    assert_eq!(world.asked().await, 3);
    let World { dispatcher, owner, tasks, .. } = world;
    let mut stream = Tasks::new(tasks, dispatcher);
    assert!(futures::StreamExt::next(&mut stream).await.unwrap().is_ok());
    drop(stream);
    // A place that was free in the meantime may have been filled by a fourth.
    while lock(&owner.released).len() < owner.asked.load(Ordering::Relaxed) - 1 {
        owner.asking.notified().await;
    }
    let released = lock(&owner.released).clone();
    assert!(released.iter().all(|call| call.shard_id == 1 && call.request.as_ref().unwrap().worker_id == "w"), "{released:?}");
}
