//! One stream to a matching process.

use super::credit::{Credits, Room};
use crate::edge::Edge;
use futures::Stream;
use harvest_ids::{Namespace, WorkerId};
use harvest_persistence::control::Member;
use harvest_proto::internal::v1::matching_service_client::MatchingServiceClient;
use harvest_proto::internal::v1::work_message::Message as Outgoing;
use harvest_proto::internal::v1::{WorkHello, WorkMessage};
use harvest_proto::v1;
use harvest_proto::v1::server_message::Message;
use harvest_rpc::{Error, MAX_MESSAGE_BYTES};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// How long tasks on their way are waited for after a link was told to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the queues of a broken link are served again.
const REOPEN_PAUSE: Duration = Duration::from_millis(100);

/// What a link tells its session.
pub(super) enum LinkEvent {
    /// A task for the worker.
    Task(Box<Message>),
    /// The link has ended.
    Ended {
        /// Which.
        number: u64,
    },
}

/// What waits to be sent to the matching process. One place for each thing, so that it cannot grow while the process does not read.
#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<OutboxState>,
    wake: Notify,
    closed: CancellationToken,
}

#[derive(Default)]
struct OutboxState {
    credits: Credits,
    drain: bool,
}

impl Outbox {
    /// Grants credit.
    pub(super) fn grant(&self, queue: &str, room: Room) {
        self.state().credits.add(queue, room);
        self.wake.notify_one();
    }

    /// Voids all credit.
    pub(super) fn drain(&self) {
        let mut state = self.state();
        state.credits.clear();
        state.drain = true;
        drop(state);
        self.wake.notify_one();
    }

    /// Voids all credit and ends our side of the stream.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.drain();
    }

    /// Whether our side was ended.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    async fn next(&self) -> Option<Outgoing> {
        loop {
            {
                let mut state = self.state();
                if std::mem::take(&mut state.drain) {
                    return Some(Outgoing::Drain(v1::Drain {}));
                }
                if self.is_closed() {
                    return None;
                }
                if let Some((task_queue, room)) = state.credits.pop() {
                    return Some(Outgoing::Credit(v1::Credit { task_queue, workflow_tasks: room.workflow, activity_tasks: room.activity }));
                }
            }
            self.wake.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a link until it breaks, or until its outbox is closed and the matching process has sent what was on its way.
pub(super) async fn run(
    edge: Arc<Edge>,
    number: u64,
    member: Member,
    (namespace, worker_id): (Namespace, WorkerId),
    outbox: Arc<Outbox>,
    events: mpsc::Sender<LinkEvent>,
) {
    let hello = WorkHello { namespace: namespace.to_string(), worker_id: worker_id.to_string() };
    let ended = forward(&edge, &member, (hello, &worker_id), &outbox, &events).await;
    if !outbox.is_closed() {
        match ended {
            Ok(()) => tracing::debug!(%worker_id, matching = member.process_id, "the stream of tasks was ended"),
            Err(error) => tracing::debug!(%worker_id, matching = member.process_id, %error, "the stream of tasks broke"),
        }
        let directory = edge.router.directory();
        directory.suspect(&member.process_id);
        if let Err(error) = directory.refresh_now().await {
            tracing::debug!(%error, "the routing table could not be refreshed");
        }
        edge.clock.sleep(REOPEN_PAUSE).await;
    }
    if events.send(LinkEvent::Ended { number }).await.is_err() {
        tracing::trace!("the session has ended before its link");
    }
}

async fn forward(
    edge: &Edge,
    member: &Member,
    (hello, worker_id): (WorkHello, &WorkerId),
    outbox: &Arc<Outbox>,
    events: &mpsc::Sender<LinkEvent>,
) -> Result<(), Error> {
    let mut client = MatchingServiceClient::new(edge.router.channels().get(&member.address)?).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let mut inbound = client.work(outgoing(hello, outbox.clone())).await?.into_inner();
    let overdue = async {
        outbox.closed.cancelled().await;
        edge.clock.sleep(CLOSE_TIMEOUT).await;
    };
    let tasks = async {
        while let Some(message) = inbound.message().await? {
            let Some(task) = message.message else { continue };
            if let Message::ActivityTask(activity) = &task {
                edge.sessions.handed(worker_id, &activity.task_token);
            }
            if events.send(LinkEvent::Task(Box::new(task))).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = tasks => ended,
        () = overdue => Ok(()),
    }
}

fn outgoing(hello: WorkHello, outbox: Arc<Outbox>) -> impl Stream<Item = WorkMessage> {
    futures::stream::unfold((Some(hello), outbox), |(hello, outbox)| async move {
        let message = match hello {
            Some(hello) => Outgoing::Hello(hello),
            None => outbox.next().await?,
        };
        Some((WorkMessage { message: Some(message) }, (None, outbox)))
    })
}
