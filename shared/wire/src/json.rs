//! Events as JSON, for people, exports and replay files: `{"event_id":1,"at_ms":1796000000000,"type":"TimerFired","data":{..}}`.
//!
//! Empty texts, zeros and absent parts are left out. Payloads tagged `json` appear as the JSON that they are, byte for byte; others as
//! `{"encoding":"..","base64":".."}` (see [`PayloadJson`]). Reading back what was written gives the same event.

mod data;
mod payload;

pub use payload::PayloadJson;

use crate::error::WireError;
use crate::event;
use harvest_proto::v1;
use harvest_workflow_core::event::Event;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One event as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventJson {
    /// Its number.
    pub event_id: u64,
    /// When it was decided, milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The variant's name, e.g. `ActivityScheduled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its fields.
    pub data: Box<RawValue>,
}

impl From<&Event> for EventJson {
    fn from(event: &Event) -> Self {
        Self::from_proto(event::to_proto(event)).expect("an event of the core has a known variant")
    }
}

impl TryFrom<EventJson> for Event {
    type Error = WireError;

    /// # Errors
    /// [`WireError`] for an unknown variant or a bad field.
    fn try_from(json: EventJson) -> Result<Self, WireError> {
        event::from_proto(json.into_proto()?)
    }
}

impl EventJson {
    /// From the wire's form; `None` when its variant is newer than this program.
    pub fn from_proto(event: v1::Event) -> Option<Self> {
        let (kind, data) = data::write(event.kind?);
        Some(Self { event_id: event.event_id, at_ms: event.at_ms, kind: kind.to_owned(), data })
    }

    /// To the wire's form.
    ///
    /// # Errors
    /// [`WireError`] for an unknown variant or fields of the wrong JSON type.
    pub fn into_proto(self) -> Result<v1::Event, WireError> {
        Ok(v1::Event { event_id: self.event_id, at_ms: self.at_ms, kind: Some(data::read(&self.kind, &self.data)?) })
    }
}

/// A whole history as a JSON array.
pub fn encode_history(events: &[Event]) -> String {
    let events: Vec<EventJson> = events.iter().map(EventJson::from).collect();
    serde_json::to_string(&events).expect("these types always serialize")
}

/// Reads a JSON array of events.
///
/// # Errors
/// [`WireError`] naming the event and the field.
pub fn decode_history(text: &str) -> Result<Vec<Event>, WireError> {
    let events: Vec<EventJson> = serde_json::from_str(text).map_err(|error| WireError::Json { field: "events".into(), problem: error.to_string() })?;
    let each = events.into_iter().enumerate();
    each.map(|(index, event)| Event::try_from(event).map_err(|error| error.within(&format!("events[{index}]")))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_ids::{EventId, Timestamp};
    use harvest_workflow_core::event::EventKind;
    use harvest_workflow_core::payload::Payload;

    fn completed(payload: Payload) -> Event {
        Event { id: EventId(3), at: Timestamp::from_millis(1_796_000_000_000), kind: EventKind::WorkflowCompleted { output: payload } }
    }

    #[test]
    fn a_json_payload_is_shown_as_itself_and_reads_back_byte_for_byte() {
        let event = completed(Payload::json(r#"{"b": 1,"a":1.0e3}"#));
        let text = encode_history(std::slice::from_ref(&event));
        assert_eq!(text, r#"[{"event_id":3,"at_ms":1796000000000,"type":"WorkflowCompleted","data":{"output":{"b": 1,"a":1.0e3}}}]"#);
        assert_eq!(decode_history(&text).unwrap(), [event]);
    }

    #[test]
    fn payloads_that_are_no_plain_json_are_wrapped() {
        let encoding = harvest_ids::Encoding::new("protobuf").unwrap();
        for payload in [
            Payload { data: vec![0, 255].into(), encoding },
            Payload::json("not json"),
            Payload::json(" 1 "),
            Payload::json(""),
            Payload::json(vec![b'"', 0xff, b'"']),
            Payload::json(r#"{"encoding":"x","base64":"AA=="}"#),
        ] {
            let event = completed(payload);
            let text = encode_history(std::slice::from_ref(&event));
            assert!(text.contains("base64"), "{text}");
            assert_eq!(decode_history(&text).unwrap(), [event]);
        }
    }

    #[test]
    fn an_unknown_variant_and_a_bad_field_are_refused_by_name() {
        let refused = decode_history(r#"[{"event_id":1,"at_ms":0,"type":"Nonsense","data":{}}]"#).unwrap_err();
        assert_eq!(refused.field(), "events[0].type");
        let refused = decode_history(r#"[{"event_id":1,"at_ms":0,"type":"TimerStarted","data":{"timer_id":"t"}}]"#).unwrap_err();
        assert_eq!(refused.field(), "events[0].duration_ms");
    }
}
