//! Names that users choose. All share one rule: 1 to 255 bytes of UTF-8 without U+0000 (Postgres `text` cannot hold it).

use std::fmt;

/// The most bytes a name may have.
pub const MAX_BYTES: usize = 255;

/// Why a text was refused as a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The field was absent or empty.
    #[error("{field} must not be empty (1 to {MAX_BYTES} bytes)")]
    Empty {
        /// The field's name as the caller wrote it.
        field: &'static str,
    },
    /// The text is longer than [`MAX_BYTES`].
    #[error("{field} has {bytes} bytes; at most {MAX_BYTES} are allowed")]
    TooLong {
        /// The field's name as the caller wrote it.
        field: &'static str,
        /// The length found, in bytes.
        bytes: usize,
    },
    /// The text contains U+0000.
    #[error("{field} contains U+0000, which is not allowed")]
    Nul {
        /// The field's name as the caller wrote it.
        field: &'static str,
    },
}

impl TextError {
    /// The field that was refused.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Empty { field } | Self::TooLong { field, .. } | Self::Nul { field } => field,
        }
    }
}

fn check(field: &'static str, text: &str) -> Result<(), TextError> {
    if text.is_empty() {
        return Err(TextError::Empty { field });
    }
    if text.len() > MAX_BYTES {
        return Err(TextError::TooLong { field, bytes: text.len() });
    }
    if text.contains('\0') {
        return Err(TextError::Nul { field });
    }
    Ok(())
}

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// The field name used in errors.
            pub const FIELD: &'static str = $field;

            /// Checks and wraps a text.
            ///
            /// # Errors
            /// [`TextError`] naming the field and what is allowed.
            pub fn new(text: impl AsRef<str>) -> Result<Self, TextError> {
                let text = text.as_ref();
                check($field, text)?;
                Ok(Self(text.into()))
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = TextError;
            fn from_str(text: &str) -> Result<Self, TextError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = TextError;
            fn try_from(text: String) -> Result<Self, TextError> {
                Self::new(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_newtype!(
    /// A tenant of the fleet: workflow ids are unique within one. `default` unless given.
    Namespace, "namespace");
text_newtype!(
    /// The name under which workers register a workflow function.
    WorkflowType, "workflow_type");
text_newtype!(
    /// The business key of a workflow: at most one open run per namespace, type and workflow id.
    WorkflowId, "workflow_id");
text_newtype!(
    /// The name under which workers register an activity function.
    ActivityType, "activity_type");
text_newtype!(
    /// Where tasks wait for workers.
    TaskQueue, "task_queue");
text_newtype!(
    /// A caller's id for one mutating call: repeating it repeats the answer, not the effect.
    RequestId, "request_id");
text_newtype!(
    /// The name of a signal.
    SignalName, "signal_name");
text_newtype!(
    /// The name of a query.
    QueryName, "query_name");
text_newtype!(
    /// The author's label for a durable timer, unique among a run's open timers.
    TimerName, "timer_id");
text_newtype!(
    /// One worker session: new at each connection of a worker process.
    WorkerId, "worker_id");
text_newtype!(
    /// How a payload's bytes are to be read, e.g. `json`.
    Encoding, "encoding");

impl Default for Namespace {
    fn default() -> Self {
        Self("default".into())
    }
}

impl Default for TaskQueue {
    fn default() -> Self {
        Self("default".into())
    }
}

impl Encoding {
    /// The default encoding: UTF-8 JSON.
    pub fn json() -> Self {
        Self("json".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_refused_with_its_field_and_the_limit() {
        assert_eq!(WorkflowId::new("").unwrap_err().to_string(), "workflow_id must not be empty (1 to 255 bytes)");
        assert_eq!(TaskQueue::new("a\0").unwrap_err(), TextError::Nul { field: "task_queue" });
        assert_eq!(SignalName::new("é".repeat(128)).unwrap_err(), TextError::TooLong { field: "signal_name", bytes: 256 });
        assert_eq!(SignalName::new("x".repeat(255)).unwrap().as_str().len(), 255);
    }
}
