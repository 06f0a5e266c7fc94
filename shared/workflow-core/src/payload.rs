//! User data and failures, opaque to the core.

use bytes::Bytes;
use harvest_ids::Encoding;

/// Bytes with a tag that says how to read them. The core never looks inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The bytes.
    pub data: Bytes,
    /// How to read them; `json` unless the user chose another.
    pub encoding: Encoding,
}

impl Payload {
    /// A JSON payload from text that is already JSON.
    pub fn json(text: impl Into<Bytes>) -> Self {
        Self { data: text.into(), encoding: Encoding::json() }
    }

    /// The JSON `null`.
    pub fn null() -> Self {
        Self::json(Bytes::from_static(b"null"))
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
}

/// Why something failed, as its author or the engine puts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For people.
    pub message: String,
    /// For matching: the author's error type, or one of the engine's (`HandlerPanic`, `WorkerLost`, ...). `Error` for untyped failures.
    pub error_type: String,
    /// For programs.
    pub details: Option<Payload>,
    /// The author asks that it not be retried.
    pub non_retryable: bool,
}

impl Failure {
    /// A failure of a type that the engine gives.
    pub fn engine(error_type: &str, message: impl Into<String>) -> Self {
        Self { message: message.into(), error_type: error_type.to_owned(), details: None, non_retryable: false }
    }
}
