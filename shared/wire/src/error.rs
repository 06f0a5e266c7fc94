//! Why a value was refused.

use harvest_ids::{ExecutionIdError, TextError};

/// Why a value was refused: the field, what was found, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field that must be there is not, or is empty.
    #[error("{field} must not be empty; {allowed}")]
    Missing {
        /// Which field.
        field: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A text with too many bytes.
    #[error("{field} has {found} bytes; at most {allowed} are allowed")]
    TooLong {
        /// Which field.
        field: String,
        /// The length found.
        found: u64,
        /// The bound.
        allowed: u64,
    },
    /// A payload with too many bytes, or too many items.
    #[error("{field} has {found} {unit}; at most {allowed} are allowed")]
    TooLarge {
        /// Which field.
        field: String,
        /// The size found.
        found: u64,
        /// The bound.
        allowed: u64,
        /// `bytes`, or the noun of the items.
        unit: &'static str,
    },
    /// Text contains U+0000, which the database cannot hold.
    #[error("{field} contains U+0000, which is not allowed")]
    Nul {
        /// Which field.
        field: String,
    },
    /// Bytes that must be text are not UTF-8.
    #[error("{field} is not valid UTF-8")]
    Utf8 {
        /// Which field.
        field: String,
    },
    /// A payload tagged `json` is not JSON.
    #[error("{field} is not valid JSON: {problem}")]
    Json {
        /// Which field.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// A number outside its range.
    #[error("{field} is {found}; allowed are {allowed}")]
    Range {
        /// Which field.
        field: String,
        /// What was found, with its unit.
        found: String,
        /// What is allowed, with its unit.
        allowed: &'static str,
    },
    /// A word that is none of the known ones.
    #[error("{field} {found:?} is not known; allowed are {allowed}")]
    UnknownWord {
        /// Which field.
        field: String,
        /// What was found (shortened).
        found: String,
        /// The known words.
        allowed: &'static str,
    },
    /// A text that is no execution id.
    #[error("{field} is not an execution id: {source}")]
    ExecutionId {
        /// Which field.
        field: String,
        /// Why not.
        source: ExecutionIdError,
    },
    /// Fields that exclude each other, or one that needs another.
    #[error("{field}: {problem}")]
    Combination {
        /// Which field.
        field: String,
        /// What is wrong and what is allowed.
        problem: &'static str,
    },
    /// Bytes of ours that do not decode: a task token, a page token, stored records.
    #[error("{field} does not decode: {problem}")]
    Garbage {
        /// Which field.
        field: String,
        /// What is wrong.
        problem: String,
    },
}

impl WireError {
    /// The field that was refused, as a path such as `commands[3].task_queue`.
    pub fn field(&self) -> &str {
        match self {
            Self::Missing { field, .. }
            | Self::TooLong { field, .. }
            | Self::TooLarge { field, .. }
            | Self::Nul { field }
            | Self::Utf8 { field }
            | Self::Json { field, .. }
            | Self::Range { field, .. }
            | Self::UnknownWord { field, .. }
            | Self::ExecutionId { field, .. }
            | Self::Combination { field, .. }
            | Self::Garbage { field, .. } => field,
        }
    }

    /// Whether a payload's size bound was passed (HTTP 413 rather than 400).
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLarge { unit: "bytes", .. })
    }

    /// The same error with the field as part of `outer`: `task_queue` within `commands[3]` is `commands[3].task_queue`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        match &mut self {
            Self::Missing { field, .. }
            | Self::TooLong { field, .. }
            | Self::TooLarge { field, .. }
            | Self::Nul { field }
            | Self::Utf8 { field }
            | Self::Json { field, .. }
            | Self::Range { field, .. }
            | Self::UnknownWord { field, .. }
            | Self::ExecutionId { field, .. }
            | Self::Combination { field, .. }
            | Self::Garbage { field, .. } => *field = format!("{outer}.{field}"),
        }
        self
    }

    /// A refused name under the caller's name for the field.
    pub(crate) fn text(field: &str, error: &TextError) -> Self {
        let field = field.to_owned();
        match error {
            TextError::Empty { .. } => Self::Missing { field, allowed: "1 to 255 bytes are allowed" },
            TextError::TooLong { bytes, .. } => Self::TooLong { field, found: wide(*bytes), allowed: 255 },
            TextError::Nul { .. } => Self::Nul { field },
        }
    }
}

/// A count as 64 bits.
pub(crate) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
