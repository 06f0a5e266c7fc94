//! Near deadlines are announced to the shard's timer scanner. A lost announcement costs nothing but time: the scan finds the row.

use harvest_ids::{ExecutionId, ShardId, Timestamp};
use harvest_persistence::control::ServiceKind;
use harvest_proto::internal::v1::timer_scanner_service_client::TimerScannerServiceClient;
use harvest_proto::internal::v1::{ArmTimersCall, Deadline};
use harvest_rpc::client::Channels;
use harvest_shards::{Directory, placement};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Most announcements that wait; beyond it the scan has to find them.
const BUFFERED: usize = 4_096;
/// Most deadlines of one call.
const MAX_DEADLINES: usize = 1_000;
/// How long one call may take.
const TIMEOUT: Duration = Duration::from_secs(1);

type Announcement = (ShardId, Vec<(ExecutionId, Timestamp)>);

pub(super) struct Arming {
    announcements: mpsc::Sender<Announcement>,
}

impl Arming {
    pub(super) fn start(directory: Directory, channels: Arc<Channels>, shutdown: CancellationToken) -> Self {
        let (announcements, receiver) = mpsc::channel(BUFFERED);
        drop(harvest_runtime::spawn("arm-timers", run(receiver, directory, channels, shutdown)));
        Self { announcements }
    }

    pub(super) fn arm(&self, shard_id: ShardId, deadlines: Vec<(ExecutionId, Timestamp)>) {
        if self.announcements.try_send((shard_id, deadlines)).is_err() {
            tracing::debug!(shard = shard_id.0, "near deadlines are left to the scan");
        }
    }
}

async fn run(mut announcements: mpsc::Receiver<Announcement>, directory: Directory, channels: Arc<Channels>, shutdown: CancellationToken) {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            received = announcements.recv_many(&mut batch, 256) => if received == 0 { return },
        }
        let mut by_shard: BTreeMap<ShardId, Vec<Deadline>> = BTreeMap::new();
        for (shard_id, deadlines) in batch.drain(..) {
            let deadlines = deadlines.into_iter().map(|(id, at)| Deadline { execution_id: id.as_uuid().as_bytes().to_vec().into(), due_at_ms: at.as_millis() });
            by_shard.entry(shard_id).or_default().extend(deadlines);
        }
        for (shard_id, deadlines) in by_shard {
            for chunk in deadlines.chunks(MAX_DEADLINES) {
                announce(&directory, &channels, shard_id, chunk.to_vec()).await;
            }
        }
    }
}

async fn announce(directory: &Directory, channels: &Channels, shard_id: ShardId, deadlines: Vec<Deadline>) {
    let Some(scanner) = directory.place(ServiceKind::TimerScanner, &placement::shard(shard_id)) else { return };
    let Ok(channel) = channels.get(&scanner.address) else { return };
    let mut client = TimerScannerServiceClient::new(channel);
    let mut call = tonic::Request::new(ArmTimersCall { shard_id: shard_id.0, deadlines });
    call.set_timeout(TIMEOUT);
    if let Err(status) = client.arm_timers(call).await {
        directory.suspect(&scanner.process_id);
        tracing::debug!(scanner = %scanner.address, %status, "near deadlines are left to the scan");
    }
}
