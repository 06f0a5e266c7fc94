//! Checks of single fields, shared by all messages.

use crate::error::{WireError, wide};
use harvest_ids::{DurationMs, EventId, ExecutionId, TextError};
use harvest_workflow_core::event::{ActivityTimeout, SideEffectKind, WorkflowTimeout};
use std::fmt::Display;

/// What spans are allowed.
pub const ALLOWED_SPAN: &str = "1 ms to 10 years (315360000000 ms)";

/// A name that must be there.
///
/// # Errors
/// [`WireError`] when it is empty, longer than 255 bytes or contains U+0000.
pub fn name<T: TryFrom<String, Error = TextError>>(field: &str, text: String) -> Result<T, WireError> {
    T::try_from(text).map_err(|error| WireError::text(field, &error))
}

/// A name that may be absent (empty).
///
/// # Errors
/// As [`name`].
pub fn optional_name<T: TryFrom<String, Error = TextError>>(field: &str, text: String) -> Result<Option<T>, WireError> {
    if text.is_empty() { Ok(None) } else { name(field, text).map(Some) }
}

/// A name with a default for empty.
///
/// # Errors
/// As [`name`].
pub fn name_or_default<T: TryFrom<String, Error = TextError> + Default>(field: &str, text: String) -> Result<T, WireError> {
    if text.is_empty() { Ok(T::default()) } else { name(field, text) }
}

/// The text of an optional name, empty for none.
pub fn text_or_empty<T: Display>(name: Option<&T>) -> String {
    name.map_or_else(String::new, T::to_string)
}

/// Free text of at most `allowed` bytes.
///
/// # Errors
/// [`WireError::TooLong`].
pub fn text(field: &str, text: String, allowed: usize) -> Result<String, WireError> {
    if text.len() > allowed {
        return Err(WireError::TooLong { field: field.to_owned(), found: wide(text.len()), allowed: wide(allowed) });
    }
    Ok(text)
}

/// An execution id as text.
///
/// # Errors
/// [`WireError::Missing`], [`WireError::ExecutionId`].
pub fn execution_id(field: &str, text: &str) -> Result<ExecutionId, WireError> {
    if text.is_empty() {
        return Err(WireError::Missing { field: field.to_owned(), allowed: "a UUID is allowed" });
    }
    text.parse().map_err(|source| WireError::ExecutionId { field: field.to_owned(), source })
}

/// An execution id as text that may be absent.
///
/// # Errors
/// As [`execution_id`].
pub fn optional_execution_id(field: &str, text: &str) -> Result<Option<ExecutionId>, WireError> {
    if text.is_empty() { Ok(None) } else { execution_id(field, text).map(Some) }
}

/// An execution id as 16 bytes.
///
/// # Errors
/// [`WireError::Garbage`], [`WireError::ExecutionId`].
pub fn execution_id_bytes(field: &str, bytes: &[u8]) -> Result<ExecutionId, WireError> {
    let bytes: [u8; 16] =
        bytes.try_into().map_err(|_| WireError::Garbage { field: field.to_owned(), problem: format!("{} bytes instead of 16", bytes.len()) })?;
    ExecutionId::from_uuid(uuid::Uuid::from_bytes(bytes)).map_err(|source| WireError::ExecutionId { field: field.to_owned(), source })
}

/// The 16 bytes of an execution id.
pub fn id_bytes(id: ExecutionId) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(id.as_uuid().as_bytes())
}

/// A span that must be there.
///
/// # Errors
/// [`WireError::Range`] when it is 0 or beyond 10 years.
pub fn span(field: &str, millis: u64) -> Result<DurationMs, WireError> {
    DurationMs::new(field, millis).map_err(|error| WireError::Range { field: error.field, found: error.found, allowed: ALLOWED_SPAN })
}

/// A span where 0 stands for none.
///
/// # Errors
/// As [`span`].
pub fn span_or_none(field: &str, millis: u64) -> Result<Option<DurationMs>, WireError> {
    if millis == 0 { Ok(None) } else { span(field, millis).map(Some) }
}

/// A span that may be absent; 0 is refused.
///
/// # Errors
/// As [`span`].
pub fn optional_span(field: &str, millis: Option<u64>) -> Result<Option<DurationMs>, WireError> {
    millis.map(|millis| span(field, millis)).transpose()
}

/// Milliseconds of an optional span, 0 for none.
pub fn millis_or_zero(span: Option<DurationMs>) -> u64 {
    span.map_or(0, DurationMs::as_millis)
}

/// A part of a message that must be there.
///
/// # Errors
/// [`WireError::Missing`].
pub fn required<T>(field: &str, part: Option<T>) -> Result<T, WireError> {
    part.ok_or_else(|| WireError::Missing { field: field.to_owned(), allowed: "it is required" })
}

/// Event ids from numbers.
pub fn event_ids(numbers: Vec<u64>) -> Vec<EventId> {
    numbers.into_iter().map(EventId).collect()
}

/// Event ids as numbers.
pub fn numbers(ids: &[EventId]) -> Vec<u64> {
    ids.iter().map(|id| id.0).collect()
}

pub(crate) fn unknown_word(field: &str, found: &str, allowed: &'static str) -> WireError {
    WireError::UnknownWord { field: field.to_owned(), found: found.chars().take(64).collect(), allowed }
}

/// The word for a kind of side effect.
pub fn side_effect_word(kind: SideEffectKind) -> &'static str {
    match kind {
        SideEffectKind::Now => "Now",
        SideEffectKind::Uuid => "Uuid",
        SideEffectKind::Random => "Random",
        SideEffectKind::Custom => "Custom",
    }
}

/// Reads [`side_effect_word`] back.
///
/// # Errors
/// [`WireError::UnknownWord`].
pub fn side_effect_kind(field: &str, word: &str) -> Result<SideEffectKind, WireError> {
    match word {
        "Now" => Ok(SideEffectKind::Now),
        "Uuid" => Ok(SideEffectKind::Uuid),
        "Random" => Ok(SideEffectKind::Random),
        "Custom" => Ok(SideEffectKind::Custom),
        other => Err(unknown_word(field, other, "Now, Uuid, Random, Custom")),
    }
}

/// The word for an activity's timeout.
pub fn activity_timeout_word(timeout: ActivityTimeout) -> &'static str {
    match timeout {
        ActivityTimeout::StartToClose => "StartToClose",
        ActivityTimeout::ScheduleToStart => "ScheduleToStart",
        ActivityTimeout::ScheduleToClose => "ScheduleToClose",
        ActivityTimeout::Heartbeat => "Heartbeat",
    }
}

/// Reads [`activity_timeout_word`] back.
///
/// # Errors
/// [`WireError::UnknownWord`].
pub fn activity_timeout(field: &str, word: &str) -> Result<ActivityTimeout, WireError> {
    match word {
        "StartToClose" => Ok(ActivityTimeout::StartToClose),
        "ScheduleToStart" => Ok(ActivityTimeout::ScheduleToStart),
        "ScheduleToClose" => Ok(ActivityTimeout::ScheduleToClose),
        "Heartbeat" => Ok(ActivityTimeout::Heartbeat),
        other => Err(unknown_word(field, other, "StartToClose, ScheduleToStart, ScheduleToClose, Heartbeat")),
    }
}

/// Reads a limit of an activity; empty means none.
///
/// # Errors
/// [`WireError`] for an unknown word.
pub fn optional_activity_timeout(field: &str, word: &str) -> Result<Option<ActivityTimeout>, WireError> {
    if word.is_empty() { Ok(None) } else { activity_timeout(field, word).map(Some) }
}

/// The word for a run's timeout.
pub fn workflow_timeout_word(timeout: WorkflowTimeout) -> &'static str {
    match timeout {
        WorkflowTimeout::Execution => "Execution",
        WorkflowTimeout::Chain => "Chain",
    }
}

/// Reads [`workflow_timeout_word`] back.
///
/// # Errors
/// [`WireError::UnknownWord`].
pub fn workflow_timeout(field: &str, word: &str) -> Result<WorkflowTimeout, WireError> {
    match word {
        "Execution" => Ok(WorkflowTimeout::Execution),
        "Chain" => Ok(WorkflowTimeout::Chain),
        other => Err(unknown_word(field, other, "Execution, Chain")),
    }
}
