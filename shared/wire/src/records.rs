//! Records as they are stored.

use crate::error::WireError;
use crate::field::{name, required};
use crate::token::{dispatch_from_proto, dispatch_to_proto};
use crate::{event, failure, payload};
use bytes::Bytes;
use harvest_ids::{Attempt, EventId, Timestamp};
use harvest_proto::internal::v1 as stored;
use harvest_proto::internal::v1::record::Kind;
use harvest_proto::internal::v1::workflow_task_failed::Cause;
use harvest_workflow_core::record::{Control, Record, WorkflowTaskFailure};
use prost::Message as _;

/// The bytes of one history row.
pub fn encode(records: &[Record]) -> Bytes {
    let records = records.iter().map(to_proto).collect();
    stored::Records { records }.encode_to_vec().into()
}

/// Reads one history row back.
///
/// # Errors
/// [`WireError`] when the bytes are not records, or hold one of a kind newer than this program.
pub fn decode(bytes: &[u8]) -> Result<Vec<Record>, WireError> {
    let row = stored::Records::decode(bytes).map_err(|error| WireError::Garbage { field: "records".into(), problem: error.to_string() })?;
    let each = row.records.into_iter().enumerate();
    each.map(|(index, record)| from_proto(record).map_err(|error| error.within(&format!("records[{index}]")))).collect()
}

/// One record to its stored form.
pub fn to_proto(record: &Record) -> stored::Record {
    let kind = match record {
        Record::Event(it) => Kind::Event(event::to_proto(it)),
        Record::Control(it) => control_to_proto(it),
    };
    stored::Record { kind: Some(kind) }
}

fn control_to_proto(control: &Control) -> Kind {
    match control {
        Control::WorkflowTaskStarted { at, attempt, dispatch } => {
            Kind::WorkflowTaskStarted(stored::WorkflowTaskStarted { at_ms: at.as_millis(), attempt: attempt.0, dispatch: Some(dispatch_to_proto(dispatch)) })
        }
        Control::WorkflowTaskFailed { at, attempt, cause, retry_at } => Kind::WorkflowTaskFailed(stored::WorkflowTaskFailed {
            at_ms: at.as_millis(),
            attempt: attempt.0,
            retry_at_ms: retry_at.as_millis(),
            cause: Some(cause_to_proto(cause)),
        }),
        Control::WorkflowTaskRetryDue { at, attempt } => Kind::WorkflowTaskRetryDue(stored::WorkflowTaskRetryDue { at_ms: at.as_millis(), attempt: attempt.0 }),
        Control::ActivityAttemptStarted { at, activity_id, attempt, dispatch } => Kind::ActivityAttemptStarted(stored::ActivityAttemptStarted {
            at_ms: at.as_millis(),
            activity_id: activity_id.0,
            attempt: attempt.0,
            dispatch: Some(dispatch_to_proto(dispatch)),
        }),
        Control::ActivityAttemptFailed { at, activity_id, attempt, failure: it, retry_at } => Kind::ActivityAttemptFailed(stored::ActivityAttemptFailed {
            at_ms: at.as_millis(),
            activity_id: activity_id.0,
            attempt: attempt.0,
            failure: Some(failure::to_proto(it)),
            retry_at_ms: retry_at.as_millis(),
        }),
        Control::ActivityAttemptReleased { at, activity_id, attempt } => {
            Kind::ActivityAttemptReleased(stored::ActivityAttemptReleased { at_ms: at.as_millis(), activity_id: activity_id.0, attempt: attempt.0 })
        }
        Control::ActivityRetryDue { at, activity_id, attempt } => {
            Kind::ActivityRetryDue(stored::ActivityRetryDue { at_ms: at.as_millis(), activity_id: activity_id.0, attempt: attempt.0 })
        }
        Control::ActivityHeartbeat { at, activity_id, attempt, details } => Kind::ActivityHeartbeat(stored::ActivityHeartbeat {
            at_ms: at.as_millis(),
            activity_id: activity_id.0,
            attempt: attempt.0,
            details: details.as_ref().map(payload::to_proto),
        }),
        Control::RequestSeen { at, request_id } => Kind::RequestSeen(stored::RequestSeen { at_ms: at.as_millis(), request_id: request_id.to_string() }),
        Control::RequestsForgotten { at, count } => Kind::RequestsForgotten(stored::RequestsForgotten { at_ms: at.as_millis(), count: *count }),
        Control::ChildStartConfirmed { at, started } => {
            Kind::ChildStartConfirmed(stored::ChildStartConfirmed { at_ms: at.as_millis(), started_event_id: started.0 })
        }
        Control::WorkflowTaskExtended { at } => Kind::WorkflowTaskExtended(stored::WorkflowTaskExtended { at_ms: at.as_millis() }),
        Control::SlaBreached { at } => Kind::SlaBreached(stored::SlaBreached { at_ms: at.as_millis() }),
        Control::Paused { at, until, reason } => Kind::Paused(stored::Paused { at_ms: at.as_millis(), until_ms: until.as_millis(), reason: reason.clone() }),
        Control::Resumed { at } => Kind::Resumed(stored::Resumed { at_ms: at.as_millis() }),
    }
}

fn cause_to_proto(cause: &WorkflowTaskFailure) -> Cause {
    match cause {
        WorkflowTaskFailure::TimedOut => Cause::TimedOut(true),
        WorkflowTaskFailure::NonDeterminism { message, expected, actual, event_id } => Cause::NonDeterminism(stored::StoredNonDeterminism {
            message: message.clone(),
            expected: expected.clone(),
            actual: actual.clone(),
            event_id: event_id.0,
        }),
        WorkflowTaskFailure::Panicked { message } => Cause::Panicked(message.clone()),
        WorkflowTaskFailure::WorkerError { message } => Cause::WorkerError(message.clone()),
        WorkflowTaskFailure::UnseenNews => Cause::UnseenNews(true),
    }
}

/// One record from its stored form.
///
/// # Errors
/// [`WireError`] naming the field; a kind newer than this program is refused, never skipped.
pub fn from_proto(record: stored::Record) -> Result<Record, WireError> {
    let Some(kind) = record.kind else {
        return Err(WireError::Garbage { field: "kind".into(), problem: "the record's kind is missing or newer than this program".into() });
    };
    let millis = Timestamp::from_millis;
    Ok(Record::Control(match kind {
        Kind::Event(it) => return event::from_proto(it).map(Record::Event),
        Kind::WorkflowTaskStarted(it) => Control::WorkflowTaskStarted {
            at: millis(it.at_ms),
            attempt: Attempt(it.attempt),
            dispatch: dispatch_from_proto(required("dispatch", it.dispatch)?)?,
        },
        Kind::WorkflowTaskFailed(it) => Control::WorkflowTaskFailed {
            at: millis(it.at_ms),
            attempt: Attempt(it.attempt),
            cause: cause(required("cause", it.cause)?),
            retry_at: millis(it.retry_at_ms),
        },
        Kind::WorkflowTaskRetryDue(it) => Control::WorkflowTaskRetryDue { at: millis(it.at_ms), attempt: Attempt(it.attempt) },
        Kind::ActivityAttemptStarted(it) => Control::ActivityAttemptStarted {
            at: millis(it.at_ms),
            activity_id: EventId(it.activity_id),
            attempt: Attempt(it.attempt),
            dispatch: dispatch_from_proto(required("dispatch", it.dispatch)?)?,
        },
        Kind::ActivityAttemptFailed(it) => Control::ActivityAttemptFailed {
            at: millis(it.at_ms),
            activity_id: EventId(it.activity_id),
            attempt: Attempt(it.attempt),
            failure: failure::required("failure", it.failure)?,
            retry_at: millis(it.retry_at_ms),
        },
        Kind::ActivityAttemptReleased(it) => {
            Control::ActivityAttemptReleased { at: millis(it.at_ms), activity_id: EventId(it.activity_id), attempt: Attempt(it.attempt) }
        }
        Kind::ActivityRetryDue(it) => Control::ActivityRetryDue { at: millis(it.at_ms), activity_id: EventId(it.activity_id), attempt: Attempt(it.attempt) },
        Kind::ActivityHeartbeat(it) => Control::ActivityHeartbeat {
            at: millis(it.at_ms),
            activity_id: EventId(it.activity_id),
            attempt: Attempt(it.attempt),
            details: payload::optional("details", it.details)?,
        },
        Kind::RequestSeen(it) => Control::RequestSeen { at: millis(it.at_ms), request_id: name("request_id", it.request_id)? },
        Kind::RequestsForgotten(it) => Control::RequestsForgotten { at: millis(it.at_ms), count: it.count },
        Kind::ChildStartConfirmed(it) => Control::ChildStartConfirmed { at: millis(it.at_ms), started: EventId(it.started_event_id) },
        Kind::WorkflowTaskExtended(it) => Control::WorkflowTaskExtended { at: millis(it.at_ms) },
        Kind::SlaBreached(it) => Control::SlaBreached { at: millis(it.at_ms) },
        Kind::Paused(it) => Control::Paused { at: millis(it.at_ms), until: millis(it.until_ms), reason: it.reason },
        Kind::Resumed(it) => Control::Resumed { at: millis(it.at_ms) },
    }))
}

fn cause(cause: Cause) -> WorkflowTaskFailure {
    match cause {
        Cause::TimedOut(_) => WorkflowTaskFailure::TimedOut,
        Cause::NonDeterminism(it) => {
            WorkflowTaskFailure::NonDeterminism { message: it.message, expected: it.expected, actual: it.actual, event_id: EventId(it.event_id) }
        }
        Cause::Panicked(message) => WorkflowTaskFailure::Panicked { message },
        Cause::WorkerError(message) => WorkflowTaskFailure::WorkerError { message },
        Cause::UnseenNews(_) => WorkflowTaskFailure::UnseenNews,
    }
}
