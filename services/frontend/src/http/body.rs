//! JSON bodies, read field by field, so that a refusal names the field and what is allowed.

use super::fail::Failed;
use super::query::Parameters;
use crate::edge::Edge;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use harvest_proto::v1;
use harvest_rpc::{Error, Reason};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A JSON object whose fields are taken one by one. As an extractor it is for routes without parameters: what they are told, the body says.
pub(super) struct Fields {
    fields: BTreeMap<String, Box<RawValue>>,
    known: Vec<&'static str>,
}

impl FromRequest<Arc<Edge>> for Fields {
    type Rejection = Failed;

    async fn from_request(request: Request, edge: &Arc<Edge>) -> Result<Self, Failed> {
        Parameters::read(request.uri())?.finish()?;
        let (head, body) = request.into_parts();
        Ok(Self::read(edge, &head.headers, body).await?)
    }
}

impl Fields {
    /// Reads a body; an empty one is an object without fields.
    async fn read(edge: &Edge, headers: &HeaderMap, body: Body) -> Result<Self, Error> {
        check_encoding(headers)?;
        let bytes = receive(edge, headers, body).await?;
        if bytes.trim_ascii().is_empty() {
            return Ok(Self { fields: BTreeMap::new(), known: Vec::new() });
        }
        check_media_type(headers)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::invalid("body", "the body is not valid UTF-8"))?;
        let object: Object = serde_json::from_str(text).map_err(|error| Error::invalid("body", format!("the body must be a JSON object: {error}")))?;
        if let Some(twice) = object.twice {
            let shown: String = twice.chars().take(64).collect();
            return Err(Error::invalid(shown.clone(), format!("field {shown:?} is given twice")));
        }
        Ok(Self { fields: object.fields, known: Vec::new() })
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
        string(field, &raw)
    }

    /// The text of an id or name; empty when absent, and refused when it is there and empty: somebody wanted to say something.
    pub(super) fn id(&mut self, field: &'static str) -> Result<String, Error> {
        let Some(raw) = self.optional(field) else { return Ok(String::new()) };
        if raw.get() == r#""""# {
            return Err(Error::invalid(field, format!("{field} must not be empty; leave it out instead")));
        }
        string(field, &raw)
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

    /// Seconds of a wait, from 0 to `longest`, as milliseconds; absent and null are the same.
    pub(super) fn wait(&mut self, field: &'static str, longest: Duration) -> Result<Option<u64>, Error> {
        let Some(raw) = self.optional(field) else { return Ok(None) };
        let number: Option<f64> = serde_json::from_str(raw.get()).ok();
        let span = number.and_then(|number| Duration::try_from_secs_f64(number).ok()).filter(|span| *span <= longest);
        span.and_then(whole_millis).map(Some).ok_or_else(|| {
            let found: String = raw.get().chars().take(64).collect();
            Error::invalid(field, format!("{field} is {found}; allowed are numbers of seconds from 0 to {}", longest.as_secs()))
        })
    }

    /// Refuses fields that nobody took.
    pub(super) fn finish(self) -> Result<(), Error> {
        let Some(unknown) = self.fields.keys().next() else { return Ok(()) };
        let shown: String = unknown.chars().take(64).collect();
        Err(Error::invalid(shown.clone(), format!("field {shown:?} is not known; allowed are {}", self.known.join(", "))))
    }
}

/// A JSON object, and the first name in it that is given twice.
#[derive(Default)]
struct Object {
    fields: BTreeMap<String, Box<RawValue>>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for Object {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Self, A::Error> {
        while let Some((name, value)) = entries.next_entry::<String, Box<RawValue>>()? {
            if self.fields.insert(name.clone(), value).is_some() {
                self.twice.get_or_insert(name);
            }
        }
        Ok(self)
    }
}

/// Receives a body, bounded in bytes and in time; the shutdown waits for none that is still under way.
async fn receive(edge: &Edge, headers: &HeaderMap, body: Body) -> Result<Bytes, Error> {
    let (most, longest) = (edge.options.max_body_bytes, edge.options.body_timeout);
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()).and_then(|length| length.parse::<usize>().ok());
    if let Some(found) = declared.filter(|found| *found > most) {
        return Err(Error::too_large("body", format!("the body has {found} bytes; at most {most} are allowed")));
    }
    let received = edge.while_serving(async {
        tokio::select! {
            biased;
            received = to_bytes(body, most) => Ok(received),
            () = edge.clock.sleep(longest) => Err(Error::new(Reason::RequestTimeout, format!("the body did not arrive within {} ms", longest.as_millis()))),
        }
    });
    received.await?.map_err(|error| {
        use std::error::Error as _;
        let over = error.source().is_some_and(|source| source.to_string().contains("length limit exceeded"));
        if over {
            Error::too_large("body", format!("the body has more than the {most} bytes that are allowed"))
        } else {
            Error::invalid("body", format!("the body could not be read: {error}"))
        }
    })
}

/// Plain bodies only.
fn check_encoding(headers: &HeaderMap) -> Result<(), Error> {
    let encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let Some(found) = encodings.map(|encoding| encoding.to_str().unwrap_or("unreadable").trim()).find(|found| !found.eq_ignore_ascii_case("identity")) else {
        return Ok(());
    };
    Err(Error::new(Reason::UnsupportedMediaType, format!("content encoding {found:?} is not taken; the body must not be compressed")))
}

/// JSON in UTF-8 only, when a type is given at all.
fn check_media_type(headers: &HeaderMap) -> Result<(), Error> {
    let Some(found) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let found = found.to_str().unwrap_or_default().to_ascii_lowercase();
    let mut parts = found.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    // The last is what curl says when it is not told otherwise.
    if kind != "application/json" && !kind.ends_with("+json") && kind != "application/x-www-form-urlencoded" {
        return Err(Error::new(Reason::UnsupportedMediaType, format!("content type {kind:?} is not taken; the body must be application/json")));
    }
    let charset = parts.filter_map(|parameter| parameter.split_once('=')).find(|(name, _)| name.trim() == "charset");
    match charset.map(|(_, value)| value.trim().trim_matches('"')) {
        None | Some("utf-8" | "utf8" | "us-ascii") => Ok(()),
        Some(other) => Err(Error::new(Reason::UnsupportedMediaType, format!("charset {other:?} is not taken; the body must be UTF-8"))),
    }
}

fn string(field: &str, raw: &RawValue) -> Result<String, Error> {
    serde_json::from_str(raw.get()).map_err(|_| Error::invalid(field, format!("{field} must be a string")))
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
    if !(0.001..=315_360_000.0).contains(&number) {
        return Err(refused());
    }
    Duration::try_from_secs_f64(number).ok().and_then(whole_millis).ok_or_else(refused)
}

/// Milliseconds of a span, rounding a fraction up.
fn whole_millis(span: Duration) -> Option<u64> {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).ok()
}
