//! A refusal as it travels: reason, text, field, metadata, when to try again.

use crate::reason::Reason;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display};
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The `domain` of our `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "harvest";
/// Metadata of [`Reason::ShardNotOwned`]: where the owner serves gRPC.
pub const OWNER_ADDRESS: &str = "owner_address";
/// Metadata of [`Reason::ShardNotOwned`]: the shard.
pub const SHARD_ID: &str = "shard_id";
/// The pause that is advised where repeating makes sense and nothing better is known.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_millis(100);

/// A refused call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Why.
    pub reason: Reason,
    /// For people: names the thing and what is allowed.
    pub message: String,
    /// The field that was refused.
    pub field: Option<String>,
    /// More for programs, by reason.
    pub metadata: BTreeMap<String, String>,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// A refusal.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let retry_after = reason.retryable().then_some(DEFAULT_RETRY_AFTER);
        Self { reason, message: message.into(), field: None, metadata: BTreeMap::new(), retry_after }
    }

    /// A field that is refused, with a text that says what is allowed.
    pub fn invalid(field: impl Into<String>, message: impl Display) -> Self {
        Self { field: Some(field.into()), ..Self::new(Reason::InvalidArgument, message.to_string()) }
    }

    /// A field with too many bytes.
    pub fn too_large(field: impl Into<String>, message: impl Display) -> Self {
        Self { field: Some(field.into()), ..Self::new(Reason::PayloadTooLarge, message.to_string()) }
    }

    /// The process does not own the shard; `owner_address` is where to ask instead, where known.
    pub fn not_owned(shard_id: harvest_ids::ShardId, owner_address: Option<&str>) -> Self {
        let error = Self::new(Reason::ShardNotOwned, format!("shard {shard_id} is not owned by this process")).with(SHARD_ID, shard_id);
        match owner_address {
            Some(address) => error.with(OWNER_ADDRESS, address),
            None => error,
        }
    }

    /// Nobody could answer just now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Reason::Unavailable, message)
    }

    /// A fault of the server.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Reason::Internal, message)
    }

    /// A bound that was reached.
    pub fn limit(limit: &str, found: u64, allowed: u64) -> Self {
        let message = format!("{limit} reached: {found} of at most {allowed}");
        Self::new(Reason::LimitReached, message).with("limit", limit).with("found", found).with("allowed", allowed)
    }

    /// The same error with one more fact for programs.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Display) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// Where to ask instead.
    pub fn owner_address(&self) -> Option<&str> {
        self.metadata.get(OWNER_ADDRESS).map(String::as_str)
    }

    /// Whether repeating the call may help.
    pub fn retryable(&self) -> bool {
        self.reason.retryable()
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.reason.as_str())
    }
}

impl std::error::Error for Error {}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let metadata: HashMap<String, String> = error.metadata.into_iter().collect();
        let mut details = ErrorDetails::with_error_info(error.reason.as_str(), DOMAIN, metadata);
        if let Some(pause) = error.retry_after {
            details.set_retry_info(Some(pause));
        }
        if let Some(field) = error.field {
            details.add_bad_request_violation(field, error.message.clone());
        }
        Status::with_error_details(error.reason.code(), error.message, details)
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let field = details.bad_request().and_then(|bad| bad.field_violations.first()).map(|violation| violation.field.clone());
        let retry_after = details.retry_info().and_then(|info| info.retry_delay);
        let info = details.error_info().filter(|info| info.domain == DOMAIN);
        if let Some((info, reason)) = info.and_then(|info| Reason::parse(&info.reason).map(|reason| (info, reason))) {
            let metadata = info.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            return Self { reason, message: status.message().to_owned(), field, metadata, retry_after };
        }
        let reason = of_foreign(&status);
        Self { field, retry_after: retry_after.or(reason.retryable().then_some(DEFAULT_RETRY_AFTER)), ..Self::new(reason, status.message()) }
    }
}

/// The reason for a status without our details: what the transport says in its own words.
fn of_foreign(status: &Status) -> Reason {
    match status.code() {
        // tonic's words for a passed deadline, and hyper's for a connection that closed under a request.
        Code::Cancelled if status.message().contains("Timeout expired") => Reason::DeadlineExceeded,
        Code::Cancelled if status.message().contains("operation was canceled") => Reason::Unavailable,
        Code::Internal | Code::Cancelled if status.message().contains("h2 protocol error") => Reason::Unavailable,
        code => Reason::of_foreign_code(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_survives_the_wire() {
        let error = Error::invalid("workflow_id", "workflow_id must not be empty");
        assert_eq!(Error::from(Status::from(error.clone())), error);
        let error = Error::not_owned(harvest_ids::ShardId(7), Some("http://10.0.0.1:7300"));
        let back = Error::from(Status::from(error.clone()));
        assert_eq!(back, error);
        assert_eq!(back.owner_address(), Some("http://10.0.0.1:7300"));
        let error = Error::limit("max_unread_signals", 20_001, 20_000);
        assert_eq!(Error::from(Status::from(error.clone())), error);
    }

    #[test]
    fn a_status_of_the_transport_is_unavailable_or_a_deadline() {
        assert_eq!(Error::from(Status::unavailable("tcp connect error")).reason, Reason::Unavailable);
        assert_eq!(Error::from(Status::unknown("transport error")).reason, Reason::Unavailable);
        assert_eq!(Error::from(Status::cancelled("Timeout expired")).reason, Reason::DeadlineExceeded);
        assert_eq!(Error::from(Status::internal("h2 protocol error: error reading a body")).reason, Reason::Unavailable);
        assert_eq!(Error::from(Status::internal("boom")).reason, Reason::Internal);
    }
}
