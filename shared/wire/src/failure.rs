//! Failures.

use crate::error::WireError;
use crate::field;
use crate::payload;
use harvest_proto::v1;
use harvest_workflow_core::payload::Failure;

/// Most bytes of a failure's message; longer ones are cut, because refusing a failure would lose the fact that something failed.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// Most bytes of an error type; longer ones are cut.
pub const MAX_ERROR_TYPE_BYTES: usize = 255;

/// To the wire.
pub fn to_proto(failure: &Failure) -> v1::Failure {
    v1::Failure {
        message: failure.message.clone(),
        error_type: failure.error_type.clone(),
        details: failure.details.as_ref().map(payload::to_proto),
        non_retryable: failure.non_retryable,
    }
}

/// From the wire; an empty type means `Error`.
///
/// # Errors
/// [`WireError`] when the details' encoding is no name.
pub fn from_proto(failure: v1::Failure) -> Result<Failure, WireError> {
    let error_type = if failure.error_type.is_empty() { "Error".to_owned() } else { cut(failure.error_type, MAX_ERROR_TYPE_BYTES) };
    Ok(Failure {
        message: cut(failure.message, MAX_MESSAGE_BYTES),
        error_type,
        details: payload::optional("details", failure.details)?,
        non_retryable: failure.non_retryable,
    })
}

/// From the wire, where it must be there.
///
/// # Errors
/// [`WireError::Missing`], or as [`from_proto`] within `field`.
pub fn required(field: &str, failure: Option<v1::Failure>) -> Result<Failure, WireError> {
    from_proto(field::required(field, failure)?).map_err(|error| error.within(field))
}

/// Cuts a text at a character boundary.
pub fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}
