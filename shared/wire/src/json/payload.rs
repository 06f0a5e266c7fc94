//! Payloads as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harvest_proto::v1;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A payload that serializes as the JSON it holds, or, when it holds none, as `{"encoding":"..","base64":".."}`.
#[derive(Debug, Clone, PartialEq)]
pub struct PayloadJson(pub v1::Payload);

/// The form of what cannot be shown as itself.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped {
    encoding: String,
    base64: String,
}

impl PayloadJson {
    /// The payload as the JSON that people see.
    pub fn to_raw(&self) -> Box<RawValue> {
        self.as_itself().unwrap_or_else(|| {
            let encoding = if self.0.encoding.is_empty() { "json" } else { &self.0.encoding };
            let wrapped = Wrapped { encoding: encoding.to_owned(), base64: STANDARD.encode(&self.0.data) };
            serde_json::value::to_raw_value(&wrapped).expect("two strings always serialize")
        })
    }

    /// Reads [`PayloadJson::to_raw`] back.
    ///
    /// # Errors
    /// Bad base64.
    pub fn from_raw(raw: &RawValue) -> Result<Self, base64::DecodeError> {
        match unwrap(raw) {
            Some(Wrapped { encoding, base64 }) => {
                let encoding = if encoding == "json" { String::new() } else { encoding };
                Ok(Self(v1::Payload { data: STANDARD.decode(base64)?.into(), encoding }))
            }
            None => Ok(Self(v1::Payload { data: raw.get().to_owned().into(), encoding: String::new() })),
        }
    }

    /// The bytes as JSON, when showing them so loses nothing: they are JSON, without blanks around it, and not mistaken for a wrapped payload.
    fn as_itself(&self) -> Option<Box<RawValue>> {
        if !matches!(self.0.encoding.as_str(), "" | "json") {
            return None;
        }
        let text = std::str::from_utf8(&self.0.data).ok()?;
        let raw = RawValue::from_string(text.to_owned()).ok()?;
        (raw.get().len() == text.len() && unwrap(&raw).is_none()).then_some(raw)
    }
}

fn unwrap(raw: &RawValue) -> Option<Wrapped> {
    if !raw.get().starts_with('{') {
        return None;
    }
    serde_json::from_str(raw.get()).ok()
}

impl Serialize for PayloadJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_raw().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PayloadJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_raw(&raw).map_err(D::Error::custom)
    }
}
