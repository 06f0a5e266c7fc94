//! Signals that arrived and that workflow code has not taken.

use crate::payload::Payload;
use harvest_ids::{RequestId, SignalName};

/// One signal that waits for workflow code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadSignal {
    /// Its name.
    pub name: SignalName,
    /// Its payload, kept until it is taken or the run closes.
    pub payload: Payload,
    /// The id it was sent with.
    pub request_id: Option<RequestId>,
}
