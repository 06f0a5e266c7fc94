//! Payloads.

use crate::error::{WireError, wide};
use crate::field;
use bytes::Bytes;
use harvest_ids::Encoding;
use harvest_proto::v1;
use harvest_workflow_core::payload::Payload;

/// To the wire. The bytes are shared, not copied.
pub fn to_proto(payload: &Payload) -> v1::Payload {
    // "json" is the default on the wire: most payloads save the tag.
    let encoding = if payload.encoding.as_str() == "json" { String::new() } else { payload.encoding.to_string() };
    v1::Payload { data: payload.data.clone(), encoding }
}

/// From the wire; an empty encoding means `json`. The bytes are copied: a payload is kept for long, and one that shared the message it came
/// in would keep all of that.
///
/// # Errors
/// [`WireError`] when the encoding is no name.
pub fn from_proto(payload: v1::Payload) -> Result<Payload, WireError> {
    let encoding = if payload.encoding.is_empty() { Encoding::json() } else { field::name("encoding", payload.encoding)? };
    Ok(Payload { data: Bytes::copy_from_slice(&payload.data), encoding })
}

/// From the wire; an absent payload is the JSON `null`.
///
/// # Errors
/// As [`from_proto`], within `field`.
pub fn or_null(field: &str, payload: Option<v1::Payload>) -> Result<Payload, WireError> {
    Ok(optional(field, payload)?.unwrap_or_else(Payload::null))
}

/// From the wire; it may be absent.
///
/// # Errors
/// As [`from_proto`], within `field`.
pub fn optional(field: &str, payload: Option<v1::Payload>) -> Result<Option<Payload>, WireError> {
    payload.map(|payload| from_proto(payload).map_err(|error| error.within(field))).transpose()
}

/// A client's payload: at most `allowed` bytes, and JSON when it says so. An absent one, or an empty one tagged `json`, is the JSON `null`.
///
/// # Errors
/// [`WireError::TooLarge`], [`WireError::Utf8`], [`WireError::Json`], or a bad encoding.
pub fn checked(field: &str, payload: Option<v1::Payload>, allowed: usize) -> Result<Payload, WireError> {
    let payload = or_null(field, payload)?;
    if payload.len() > allowed {
        return Err(WireError::TooLarge { field: field.to_owned(), found: wide(payload.len()), allowed: wide(allowed), unit: "bytes" });
    }
    if payload.encoding.as_str() != "json" {
        return Ok(payload);
    }
    if payload.is_empty() {
        return Ok(Payload::null());
    }
    let text = std::str::from_utf8(&payload.data).map_err(|_| WireError::Utf8 { field: field.to_owned() })?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| WireError::Json { field: field.to_owned(), problem: error.to_string() })?;
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_does_not_keep_the_message_that_it_came_in() {
        let message = Bytes::from(vec![b'7'; 1_000_000]);
        let part = v1::Payload { data: message.slice(10..12), encoding: String::new() };
        let payload = from_proto(part).unwrap();
        assert_eq!(payload.data, "77");
        assert!(message.is_unique(), "nothing else holds its bytes");
    }
}
