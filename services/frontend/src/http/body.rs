//! JSON bodies, read field by field, so that a refusal names the field and what is allowed.

use crate::edge::Edge;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, header};
use harvest_proto::v1;
use harvest_rpc::{Error, Reason};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A JSON object whose fields are taken one by one.
pub(super) struct Fields {
    fields: BTreeMap<String, Box<RawValue>>,
    known: Vec<&'static str>,
}

impl Fields {
    /// Reads a body; an empty one is an object without fields.
    pub(super) async fn read(edge: &Edge, headers: &HeaderMap, body: Body) -> Result<Self, Error> {
        let most = edge.options.max_body_bytes;
        let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()).and_then(|length| length.parse::<usize>().ok());
        if let Some(found) = declared.filter(|found| *found > most) {
            return Err(Error::too_large("body", format!("the body has {found} bytes; at most {most} are allowed")));
        }
        let bytes = to_bytes(body, most).await.map_err(|error| {
            use std::error::Error as _;
            let over = error.source().is_some_and(|source| source.to_string().contains("length limit exceeded"));
            if over {
                Error::too_large("body", format!("the body has more than the {most} bytes that are allowed"))
            } else {
                Error::invalid("body", format!("the body could not be read: {error}"))
            }
        })?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::invalid("body", "the body is not valid UTF-8"))?;
        if text.trim().is_empty() {
            return Ok(Self { fields: BTreeMap::new(), known: Vec::new() });
        }
        check_media_type(headers)?;
        let fields = serde_json::from_str(text).map_err(|error| Error::invalid("body", format!("the body must be a JSON object: {error}")))?;
        Ok(Self { fields, known: Vec::new() })
    }

    fn take(&mut self, field: &'static str) -> Option<Box<RawValue>> {
        self.known.push(field);
        self.fields.remove(field)
    }

    /// A field that may be absent or null.
    fn optional(&mut self, field: &'static str) -> Option<Box<RawValue>> {
        self.take(field).filter(|raw| raw.get() != "null")
    }

    /// A text; empty when absent.
    pub(super) fn text(&mut self, field: &'static str) -> Result<String, Error> {
        let Some(raw) = self.optional(field) else { return Ok(String::new()) };
        serde_json::from_str(raw.get()).map_err(|_| Error::invalid(field, format!("{field} must be a string")))
    }

    /// A text that is one of a few words; `None` when absent.
    pub(super) fn word<T: Copy>(&mut self, field: &'static str, words: &[(&str, T)]) -> Result<Option<T>, Error> {
        let found = self.text(field)?;
        if found.is_empty() {
            return Ok(None);
        }
        let known = words.iter().find(|(word, _)| *word == found).map(|(_, value)| *value);
        known.map(Some).ok_or_else(|| {
            let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let found: String = found.chars().take(64).collect();
            Error::invalid(field, format!("{field} {found:?} is not known; allowed are {}", allowed.join(", ")))
        })
    }

    /// Any JSON as a payload; absent stays absent.
    pub(super) fn payload(&mut self, field: &'static str) -> Option<v1::Payload> {
        self.take(field).map(|raw| v1::Payload { data: String::from(Box::<str>::from(raw)).into(), encoding: String::new() })
    }

    /// Seconds, whole or with a fraction, as milliseconds. `Some(None)` is an explicit null.
    pub(super) fn seconds_or_null(&mut self, field: &'static str) -> Result<Option<Option<u64>>, Error> {
        match self.take(field) {
            None => Ok(None),
            Some(raw) if raw.get() == "null" => Ok(Some(None)),
            Some(raw) => seconds(field, raw.get()).map(|millis| Some(Some(millis))),
        }
    }

    /// Seconds, whole or with a fraction, as milliseconds; absent and null are the same.
    pub(super) fn seconds(&mut self, field: &'static str) -> Result<Option<u64>, Error> {
        Ok(self.seconds_or_null(field)?.flatten())
    }

    /// Refuses fields that nobody took.
    pub(super) fn finish(self) -> Result<(), Error> {
        let Some(unknown) = self.fields.keys().next() else { return Ok(()) };
        let shown: String = unknown.chars().take(64).collect();
        Err(Error::invalid(shown.clone(), format!("field {shown:?} is not known; allowed are {}", self.known.join(", "))))
    }
}

/// JSON only, when a type is given at all.
fn check_media_type(headers: &HeaderMap) -> Result<(), Error> {
    let Some(found) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = found.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // What curl says when it is not told otherwise.
    if kind == "application/json" || kind.ends_with("+json") || kind == "application/x-www-form-urlencoded" {
        return Ok(());
    }
    Err(Error::new(Reason::UnsupportedMediaType, format!("content type {kind:?} is not taken; the body must be application/json")))
}

/// Reads a JSON number of seconds as whole milliseconds.
fn seconds(field: &str, text: &str) -> Result<u64, Error> {
    let refused = || {
        Error::invalid(
            field,
            format!("{field} is {}; allowed are numbers of seconds from 0.001 to 315360000 (10 years)", text.chars().take(64).collect::<String>()),
        )
    };
    let number: f64 = serde_json::from_str(text).map_err(|_| refused())?;
    if !number.is_finite() || number <= 0.0 || number > 315_360_000.0 {
        return Err(refused());
    }
    let span = std::time::Duration::try_from_secs_f64(number).map_err(|_| refused())?;
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).map_err(|_| refused())
}
