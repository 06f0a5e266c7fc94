//! A worker opens its stream.

use super::announce::{self, MAX_ATTEMPTS, Silence};
use super::link::LinkEvent;
use super::links::Links;
use super::sessions::{Place, Sessions};
use super::undelivered::{self, Outgoing as OutgoingMessages};
use crate::edge::Edge;
use crate::refuse::malformed;
use bytes::Bytes;
use futures::future::BoxFuture;
use harvest_ids::{TaskQueue, WorkerId};
use harvest_proto::v1;
use harvest_proto::v1::server_message::Message as Outgoing;
use harvest_proto::v1::worker_message::Message as Incoming;
use harvest_rpc::{Error, Reason};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

/// How long the hello is waited for.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages to the worker that wait for the network.
const OUTBOUND: usize = 16;
/// Events of links that wait for the session.
const EVENTS: usize = 16;
/// How long tasks on their way from matching are waited for when a session has ended, to be given back.
const LAST_TASKS: Duration = Duration::from_secs(3);

/// Opens a session: waits for the hello, makes it known, and answers with the stream on which welcome and tasks come.
pub(crate) async fn open_session(edge: Arc<Edge>, mut inbound: Streaming<v1::WorkerMessage>) -> Result<OutgoingMessages, Error> {
    let hello = tokio::select! {
        hello = first(&mut inbound) => hello?,
        () = edge.clock.sleep(HELLO_TIMEOUT) => return Err(Error::invalid("hello", "hello must come within 10 s of opening the stream")),
    };
    let (namespace, hello) = harvest_wire::worker::hello(hello).map_err(malformed)?;
    let resumed = resumed(&hello)?;
    let worker_id = resumed.unwrap_or_else(|| edge.ids.worker_id());
    let place = Sessions::open(&edge, worker_id.clone(), hello.clone())?;
    // Before the welcome: whoever is welcome can have its types started.
    Sessions::report_one(&edge, &worker_id, &hello).await;
    let (outbound, receiver) = mpsc::channel(OUTBOUND);
    let (events_sender, events) = mpsc::channel(EVENTS);
    let queues = hello.task_queues.iter().map(|queue| harvest_wire::field::name::<TaskQueue>("task_queues", queue.clone()));
    let queues = queues.collect::<Result<_, _>>().map_err(malformed)?;
    let links = Links::new(edge.clone(), namespace, worker_id.clone(), queues, events_sender);
    let outgoing = OutgoingMessages::new(receiver, edge.clone(), worker_id.clone());
    let session =
        Session { edge, worker_id, place, outbound, links, events, silence: Silence::default(), asking: None, next_announcement: None, told_drained: false };
    drop(harvest_runtime::spawn("worker-session", session.run(inbound)));
    Ok(outgoing)
}

/// The session that is resumed; its id must look like one that a frontend gave.
fn resumed(hello: &v1::Hello) -> Result<Option<WorkerId>, Error> {
    let id = &hello.resume_worker_id;
    if !id.is_empty() && (id.len() != 32 || !id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))) {
        return Err(Error::invalid("resume_worker_id", "resume_worker_id is no worker_id of a welcome: those are 32 hexadecimal digits"));
    }
    harvest_wire::field::optional_name("resume_worker_id", id.clone()).map_err(malformed)
}

async fn first(inbound: &mut Streaming<v1::WorkerMessage>) -> Result<v1::Hello, Error> {
    match inbound.message().await?.and_then(|message| message.message) {
        Some(Incoming::Hello(hello)) => Ok(hello),
        _ => Err(Error::invalid("hello", "the first message of a session must be hello")),
    }
}

struct Session {
    edge: Arc<Edge>,
    worker_id: WorkerId,
    place: Place,
    outbound: mpsc::Sender<Result<v1::ServerMessage, Status>>,
    links: Links,
    events: mpsc::Receiver<LinkEvent>,
    silence: Silence,
    /// The announcement that owners are being asked about.
    asking: Option<BoxFuture<'static, announce::Announced>>,
    /// The newest announcement that came meanwhile.
    next_announcement: Option<Vec<Bytes>>,
    told_drained: bool,
}

/// Why a session ends.
enum End {
    /// The worker went away, or opened the session again.
    Gone,
    /// The worker is told.
    Told(Error),
}

impl Session {
    async fn run(mut self, mut inbound: Streaming<v1::WorkerMessage>) {
        let welcome = v1::Welcome {
            worker_id: self.worker_id.to_string(),
            announce_interval_ms: millis(self.edge.options.announce_interval),
            announce_timeout_ms: millis(self.edge.options.announce_timeout),
        };
        tracing::debug!(worker_id = %self.worker_id, "worker session opened");
        let end = match self.send(Outgoing::Welcome(welcome)).await {
            Ok(()) => self.serve(&mut inbound).await,
            Err(end) => end,
        };
        match end {
            End::Gone => tracing::debug!(worker_id = %self.worker_id, "worker session ended"),
            End::Told(error) => {
                tracing::debug!(worker_id = %self.worker_id, %error, "worker session ended by this side");
                if self.outbound.send(Err(error.into())).await.is_err() {
                    tracing::trace!(worker_id = %self.worker_id, "the worker was gone already");
                }
            }
        }
        self.give_back().await;
    }

    /// Ends the links in order: what they still bring goes back to where it came from.
    async fn give_back(self) {
        let Self { edge, worker_id, place, mut links, mut events, .. } = self;
        drop(place); // nobody is served here any more
        links.close();
        let overdue = edge.clock.sleep(LAST_TASKS);
        tokio::pin!(overdue);
        while !links.are_over() {
            tokio::select! {
                () = &mut overdue => return,
                event = events.recv() => match event {
                    Some(LinkEvent::Task(task)) => undelivered::give_back(&edge, &worker_id, &task).await,
                    Some(LinkEvent::Ended { number }) => links.ended(number),
                    None => return,
                },
            }
        }
    }

    async fn serve(&mut self, inbound: &mut Streaming<v1::WorkerMessage>) -> End {
        let (shutdown, replaced) = (self.edge.shutdown.clone(), self.place.replaced.clone());
        let mut changes = self.edge.router.directory().changes();
        self.links.place();
        loop {
            let step = tokio::select! {
                () = shutdown.cancelled() => return End::Told(Error::unavailable("this frontend is shutting down: connect to another")),
                () = replaced.cancelled() => return End::Told(Error::new(Reason::Cancelled, "the session was opened again by another stream")),
                () = self.outbound.closed() => return End::Gone,
                message = inbound.message() => match message {
                    Ok(Some(message)) => self.take(message).await,
                    Ok(None) => return End::Gone,
                    Err(error) => {
                        tracing::debug!(worker_id = %self.worker_id, %error, "the worker's stream broke");
                        return End::Gone;
                    }
                },
                Some(event) = self.events.recv() => self.on_link(event).await,
                changed = changes.changed() => {
                    self.links.place();
                    changed.map_err(|_| End::Told(Error::unavailable("this frontend is ending")))
                }
                announced = asked(&mut self.asking) => self.answer(announced).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn take(&mut self, message: v1::WorkerMessage) -> Result<(), End> {
        match message.message {
            Some(Incoming::Credit(credit)) => self.credit(&credit).map_err(End::Told),
            Some(Incoming::Announce(announcement)) => {
                let found = announcement.task_tokens.len();
                if found > MAX_ATTEMPTS {
                    let message = format!("task_tokens has {found} tokens; at most {MAX_ATTEMPTS} are allowed");
                    return Err(End::Told(Error::invalid("announce.task_tokens", message)));
                }
                self.place.running.announced(&announcement.task_tokens);
                self.next_announcement = Some(announcement.task_tokens);
                self.ask();
                Ok(())
            }
            Some(Incoming::Drain(v1::Drain {})) => {
                self.links.close();
                self.drained().await
            }
            Some(Incoming::Hello(_)) => Err(End::Told(Error::invalid("hello", "hello is allowed once, as the first message"))),
            // A kind that is newer than this frontend.
            None => Ok(()),
        }
    }

    fn credit(&mut self, credit: &v1::Credit) -> Result<(), Error> {
        if !self.links.serves(&credit.task_queue) {
            let message = format!("{:?} is none of the session's task queues", credit.task_queue);
            return Err(Error::invalid("credit.task_queue", message));
        }
        let (now, most) = (self.links.credit(&credit.task_queue, credit.into()), self.edge.options.max_credit);
        if now.workflow > most || now.activity > most {
            let message = format!("credit of a queue is {} workflow and {} activity tasks; at most {most} of each are allowed", now.workflow, now.activity);
            return Err(Error::invalid("credit", message));
        }
        Ok(())
    }

    async fn on_link(&mut self, event: LinkEvent) -> Result<(), End> {
        match event {
            LinkEvent::Task(task) => {
                self.links.spent(&task);
                let unsent = self.outbound.send(Ok(v1::ServerMessage { message: Some(*task) })).await;
                let Err(mpsc::error::SendError(unsent)) = unsent else { return Ok(()) };
                if let Some(task) = unsent.ok().and_then(|message| message.message) {
                    undelivered::give_back(&self.edge, &self.worker_id, &task).await;
                }
                Err(End::Gone)
            }
            LinkEvent::Ended { number } => {
                self.links.ended(number);
                self.links.place();
                self.drained().await
            }
        }
    }

    /// Tells a draining worker, once, when nothing is on its way to it any more.
    async fn drained(&mut self) -> Result<(), End> {
        if self.links.are_drained() && !std::mem::replace(&mut self.told_drained, true) {
            return self.send(Outgoing::Drained(v1::Drained {})).await;
        }
        Ok(())
    }

    /// Asks the owners about the newest announcement, one at a time.
    fn ask(&mut self) {
        if self.asking.is_some() {
            return;
        }
        if let Some(tokens) = self.next_announcement.take() {
            self.asking = Some(Box::pin(announce::ask(self.edge.clone(), self.worker_id.clone(), tokens)));
        }
    }

    async fn answer(&mut self, announced: announce::Announced) -> Result<(), End> {
        self.asking = None;
        self.ask();
        let reply = self.silence.reply(self.edge.clock.monotonic(), self.edge.options.announce_timeout, announced);
        // The worker will stop them.
        reply.lost.iter().for_each(|token| self.place.running.ended(token));
        self.send(Outgoing::AnnounceReply(reply)).await
    }

    fn send(&self, message: Outgoing) -> impl Future<Output = Result<(), End>> + Send + use<> {
        let outbound = self.outbound.clone();
        async move { outbound.send(Ok(v1::ServerMessage { message: Some(message) })).await.map_err(|_| End::Gone) }
    }
}

/// The owners' answers; never, while nobody is asked.
async fn asked(asking: &mut Option<BoxFuture<'static, announce::Announced>>) -> announce::Announced {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
