//! Options of activities.

use crate::error::WireError;
use crate::field::{optional_name, optional_span, text_or_empty};
use crate::retry;
use harvest_ids::DurationMs;
use harvest_proto::v1;
use harvest_workflow_core::command::ActivityOptions;

/// To the wire; nothing when nothing is set.
pub fn to_proto(options: &ActivityOptions) -> Option<v1::ActivityOptions> {
    (*options != ActivityOptions::default()).then(|| v1::ActivityOptions {
        task_queue: text_or_empty(options.task_queue.as_ref()),
        retry: options.retry.as_ref().map(retry::to_proto),
        start_to_close_ms: options.start_to_close.map(DurationMs::as_millis),
        schedule_to_start_ms: options.schedule_to_start.map(DurationMs::as_millis),
        heartbeat_timeout_ms: options.heartbeat_timeout.map(DurationMs::as_millis),
        schedule_to_close_ms: options.schedule_to_close.map(DurationMs::as_millis),
    })
}

/// From the wire; absent options set nothing.
///
/// # Errors
/// [`WireError`] naming the field within `field`.
pub fn from_proto(field: &str, options: Option<v1::ActivityOptions>) -> Result<ActivityOptions, WireError> {
    read(options.unwrap_or_default()).map_err(|error| error.within(field))
}

/// The same of fields that stand by themselves.
pub(crate) fn read(it: v1::ActivityOptions) -> Result<ActivityOptions, WireError> {
    Ok(ActivityOptions {
        task_queue: optional_name("task_queue", it.task_queue)?,
        retry: it.retry.map(|policy| retry::from_proto(policy).map_err(|error| error.within("retry"))).transpose()?,
        start_to_close: optional_span("start_to_close_ms", it.start_to_close_ms)?,
        schedule_to_start: optional_span("schedule_to_start_ms", it.schedule_to_start_ms)?,
        heartbeat_timeout: optional_span("heartbeat_timeout_ms", it.heartbeat_timeout_ms)?,
        schedule_to_close: optional_span("schedule_to_close_ms", it.schedule_to_close_ms)?,
    })
}
