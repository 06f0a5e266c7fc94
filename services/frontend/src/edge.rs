//! What every call of the edge needs.

use crate::configs::Configs;
use crate::routing::Router;
use crate::session::Sessions;
use harvest_fleet_config::ConfigHandle;
use harvest_ids::{RequestId, WorkflowId};
use harvest_persistence::store::ShardStore;
use harvest_rpc::Error;
use harvest_rpc::request_bytes::RequestBytes;
use harvest_runtime::{Clock, IdSource};
use harvest_wire::start::Limits;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bounds of the edge.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a call is worked on when its caller names no deadline; a wait that the call asks for comes on top.
    pub default_deadline: Duration,
    /// The longest deadline that a caller may name.
    pub longest_deadline: Duration,
    /// Sizes of payloads and texts.
    pub limits: Limits,
    /// Largest HTTP body.
    pub max_body_bytes: usize,
    /// Most bytes of all calls in flight.
    pub max_request_bytes: u64,
    /// How long an HTTP body may take to arrive.
    pub body_timeout: Duration,
    /// Most worker sessions.
    pub max_sessions: usize,
    /// Most unspent credit of one queue and kind of a session.
    pub max_credit: u32,
    /// How often workers announce what they run.
    pub announce_interval: Duration,
    /// After how long without an answer an attempt must be aborted.
    pub announce_timeout: Duration,
    /// How often sessions are reported to the config service.
    pub report_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            default_deadline: Duration::from_secs(10),
            longest_deadline: Duration::from_secs(90),
            limits,
            // The envelope around the largest payload is small.
            max_body_bytes: limits.max_payload_bytes + 64 * 1024,
            max_request_bytes: 256 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            max_sessions: 10_000,
            max_credit: 10_000,
            announce_interval: Duration::from_secs(5),
            announce_timeout: Duration::from_secs(8),
            report_interval: Duration::from_secs(5),
        }
    }
}

/// What every call needs.
pub(crate) struct Edge {
    pub(crate) options: Options,
    pub(crate) router: Router,
    pub(crate) configs: Configs,
    pub(crate) config: ConfigHandle,
    /// For lists only.
    pub(crate) runs: Arc<dyn ShardStore>,
    pub(crate) sessions: Sessions,
    /// Bytes of calls in flight.
    pub(crate) request_bytes: RequestBytes,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    /// Begins when the process should end: sessions end with it.
    pub(crate) shutdown: CancellationToken,
}

impl Edge {
    /// When a call without a deadline of its own is given up.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline_in(self.options.default_deadline)
    }

    /// The deadline of a call that may take `span`.
    #[expect(clippy::disallowed_methods, reason = "deadlines of calls are counted on the runtime's own clock")]
    pub(crate) fn deadline_in(&self, span: Duration) -> Instant {
        Instant::now() + span
    }

    /// What a wait comes to; it ends early with the process, so that whoever waits asks another frontend and none holds the shutdown.
    pub(crate) async fn while_serving<T>(&self, wait: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            answer = wait => answer,
            () = self.shutdown.cancelled() => Err(Error::unavailable("this frontend is shutting down: ask another")),
        }
    }

    /// A request id for a call whose caller gave none: good for this frontend's own retries.
    pub(crate) fn new_request_id(&self) -> RequestId {
        RequestId::new(self.new_name()).expect("32 hexadecimal digits are a name")
    }

    /// A business key for a start that names none.
    pub(crate) fn new_workflow_id(&self) -> WorkflowId {
        WorkflowId::new(self.new_name()).expect("32 hexadecimal digits are a name")
    }

    fn new_name(&self) -> String {
        uuid::Uuid::from_u128(self.ids.random_u128()).simple().to_string()
    }
}
