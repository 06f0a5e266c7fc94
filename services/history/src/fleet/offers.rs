//! Offers: one stream to each matching process.

use crate::shard::neighbours::{Offer, OfferKind};
use harvest_persistence::control::{Member, ServiceKind};
use harvest_proto::internal::v1 as internal;
use harvest_proto::internal::v1::matching_service_client::MatchingServiceClient;
use harvest_rpc::client::Channels;
use harvest_runtime::Clock;
use harvest_shards::{Directory, placement};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Most offers on their way to one matching process.
const BUFFERED_OFFERS: usize = 8_192;
/// Offers per queue and kind until a matching process says its window.
const DEFAULT_WINDOW: usize = 1_000;
/// Between two tries to open a stream.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// The streams.
pub(super) struct Offers {
    shared: Arc<Shared>,
}

struct Shared {
    directory: Directory,
    streams: Mutex<BTreeMap<String, mpsc::Sender<internal::OfferMessage>>>,
    generation: AtomicU64,
    window: AtomicUsize,
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<String, mpsc::Sender<internal::OfferMessage>>> {
        self.streams.lock().expect("no code panics while it holds this lock")
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl Offers {
    pub(super) fn start(me: Member, directory: Directory, channels: Arc<Channels>, clock: Arc<dyn Clock>, shutdown: CancellationToken) -> Self {
        let shared = Arc::new(Shared { directory, streams: Mutex::default(), generation: AtomicU64::new(1), window: AtomicUsize::new(DEFAULT_WINDOW) });
        drop(harvest_runtime::spawn("offer-streams", keep_streams(shared.clone(), me, channels, clock, shutdown)));
        Self { shared }
    }

    pub(super) fn window(&self) -> usize {
        self.shared.window.load(Ordering::Relaxed)
    }

    pub(super) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// False when no matching process can be told now.
    pub(super) fn offer(&self, offer: Offer, sticky_timeout: Duration) -> bool {
        let key = placement::task_queue(&offer.namespace, &offer.queue);
        let Some(matching) = self.shared.directory.place(ServiceKind::Matching, &key) else { return false };
        let Some(stream) = self.shared.streams().get(&matching.process_id).cloned() else { return false };
        let message = internal::OfferMessage { message: Some(internal::offer_message::Message::Offer(to_proto(offer, sticky_timeout))) };
        stream.try_send(message).is_ok()
    }
}

fn to_proto(offer: Offer, sticky_timeout: Duration) -> internal::Offer {
    let kind = match offer.kind {
        OfferKind::Workflow => internal::TaskKind::Workflow,
        OfferKind::Activity => internal::TaskKind::Activity,
        OfferKind::Query => internal::TaskKind::Query,
    };
    internal::Offer {
        shard_id: offer.shard_id.0,
        epoch: offer.epoch.0,
        namespace: offer.namespace.to_string(),
        task_queue: offer.queue.to_string(),
        kind: kind.into(),
        execution_id: offer.execution_id.as_uuid().as_bytes().to_vec().into(),
        activity_id: offer.activity_id.map_or(0, |id| id.0),
        query_token: offer.query.map(|number| number.to_be_bytes().to_vec().into()).unwrap_or_default(),
        sticky_worker_id: offer.sticky.map(|id| id.to_string()).unwrap_or_default(),
        sticky_timeout_ms: u64::try_from(sticky_timeout.as_millis()).unwrap_or(u64::MAX),
        sequence: offer.sequence,
    }
}

/// One task per live matching process, as the membership changes.
async fn keep_streams(shared: Arc<Shared>, me: Member, channels: Arc<Channels>, clock: Arc<dyn Clock>, shutdown: CancellationToken) {
    let mut changes = shared.directory.changes();
    let mut open: BTreeMap<String, CancellationToken> = BTreeMap::new();
    loop {
        let members: BTreeMap<String, Member> =
            shared.directory.members(ServiceKind::Matching).into_iter().map(|member| (member.process_id.clone(), member)).collect();
        open.retain(|process_id, stop| {
            let lives = members.contains_key(process_id);
            if !lives {
                stop.cancel();
            }
            lives
        });
        for (process_id, member) in members {
            open.entry(process_id).or_insert_with(|| {
                let stop = shutdown.child_token();
                let stream = keep_stream(shared.clone(), me.clone(), member, channels.clone(), clock.clone(), stop.clone());
                drop(harvest_runtime::spawn("offer-stream", stream));
                stop
            });
        }
        // Queues may have moved from one process to another: what was offered is offered again, to whoever has it now.
        shared.changed();
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

async fn keep_stream(shared: Arc<Shared>, me: Member, matching: Member, channels: Arc<Channels>, clock: Arc<dyn Clock>, stop: CancellationToken) {
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => None,
            ended = run_stream(&shared, &me, &matching, &channels) => Some(ended),
        };
        shared.streams().remove(&matching.process_id);
        shared.changed();
        let Some(ended) = ended else { return };
        if let Err(error) = ended {
            tracing::debug!(matching = %matching.address, %error, "the stream of offers broke");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock.sleep(TRY_AGAIN) => {}
        }
    }
}

async fn run_stream(shared: &Shared, me: &Member, matching: &Member, channels: &Channels) -> Result<(), tonic::Status> {
    let (sender, receiver) = mpsc::channel(BUFFERED_OFFERS);
    let hello = internal::OfferHello { process_id: me.process_id.clone(), address: me.address.clone() };
    let hello = internal::OfferMessage { message: Some(internal::offer_message::Message::Hello(hello)) };
    sender.try_send(hello).map_err(|_| tonic::Status::internal("a new channel is full"))?;
    let mut client = MatchingServiceClient::new(channels.get(&matching.address)?);
    let mut replies = client.offer(ReceiverStream::new(receiver)).await?.into_inner();
    while let Some(reply) = replies.next().await {
        if let Some(window) = reply?.window {
            shared.window.store(usize::try_from(window.offers_per_queue).unwrap_or(usize::MAX), Ordering::Relaxed);
            if shared.streams().insert(matching.process_id.clone(), sender.clone()).is_none() {
                shared.changed();
            }
        }
    }
    Ok(())
}
