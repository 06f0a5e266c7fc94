//! User values to and from payloads: JSON.

use crate::error::HarvestError;
use harvest_ids::Encoding;
use harvest_workflow_core::payload::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn refuse(what: &str, error: impl ToString) -> HarvestError {
    HarvestError::Serialization { what: what.to_owned(), message: error.to_string() }
}

/// Writes a value as JSON; `what` names it in errors.
pub(crate) fn to_payload<T: Serialize + ?Sized>(what: &str, value: &T) -> Result<Payload, HarvestError> {
    Ok(Payload::json(serde_json::to_vec(value).map_err(|error| refuse(what, error))?))
}

/// Reads a value from JSON.
pub(crate) fn from_payload<T: DeserializeOwned>(what: &str, payload: &Payload) -> Result<T, HarvestError> {
    if payload.encoding != Encoding::json() {
        return Err(refuse(what, format!("its encoding is {:?}, not json", payload.encoding.as_str())));
    }
    let bytes: &[u8] = if payload.data.is_empty() { b"null" } else { &payload.data };
    serde_json::from_slice(bytes).map_err(|error| refuse(what, error))
}

/// Turns a value into a JSON tree.
pub(crate) fn to_value<T: Serialize>(what: &str, value: &T) -> Result<serde_json::Value, HarvestError> {
    serde_json::to_value(value).map_err(|error| refuse(what, error))
}
