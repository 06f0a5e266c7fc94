//! The fields of each event as JSON: the names of the protocol, empty ones left out.

use super::payload::PayloadJson;
use crate::error::WireError;
use crate::field::unknown_word;
use harvest_proto::v1;
use harvest_proto::v1::event::Kind;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A field of a message and its JSON form.
trait Json<P>: Sized {
    fn from_proto(value: P) -> Self;
    fn into_proto(self) -> P;
}

macro_rules! same {
    ($($kind:ty),+) => { $(
        impl Json<$kind> for $kind {
            fn from_proto(value: $kind) -> Self { value }
            fn into_proto(self) -> $kind { self }
        }
    )+ };
}
same!(String, u32, u64, i64, bool, Vec<u64>, Vec<String>);

impl<P, J: Json<P>> Json<Option<P>> for Option<J> {
    fn from_proto(value: Option<P>) -> Self {
        value.map(J::from_proto)
    }
    fn into_proto(self) -> Option<P> {
        self.map(J::into_proto)
    }
}

impl Json<v1::Payload> for PayloadJson {
    fn from_proto(value: v1::Payload) -> Self {
        Self(value)
    }
    fn into_proto(self) -> v1::Payload {
        self.0
    }
}

/// A number that reads back to the last bit, which serde_json's own reading of floats does not promise.
#[derive(Default, PartialEq)]
struct Exact(f64);

impl Serialize for Exact {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        raw.get().parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl Json<f64> for Exact {
    fn from_proto(value: f64) -> Self {
        Self(value)
    }
    fn into_proto(self) -> f64 {
        self.0
    }
}

/// How a delay is spread, as a word.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JitterWord {
    #[default]
    Full,
    None,
    Equal,
    Decorrelated,
}

impl Json<i32> for JitterWord {
    fn from_proto(value: i32) -> Self {
        match v1::Jitter::try_from(value) {
            Ok(v1::Jitter::None) => Self::None,
            Ok(v1::Jitter::Equal) => Self::Equal,
            Ok(v1::Jitter::Decorrelated) => Self::Decorrelated,
            Ok(v1::Jitter::Unspecified | v1::Jitter::Full) | Err(_) => Self::Full,
        }
    }
    fn into_proto(self) -> i32 {
        match self {
            Self::Full => v1::Jitter::Full,
            Self::None => v1::Jitter::None,
            Self::Equal => v1::Jitter::Equal,
            Self::Decorrelated => v1::Jitter::Decorrelated,
        }
        .into()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

macro_rules! mirror {
    ($($name:ident { $($field:ident: $kind:ty),* $(,)? })+) => { $(
        #[derive(Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        struct $name { $( #[serde(skip_serializing_if = "is_default")] $field: $kind, )* }

        impl Json<v1::$name> for $name {
            fn from_proto(value: v1::$name) -> Self {
                Self { $( $field: Json::from_proto(value.$field), )* }
            }
            fn into_proto(self) -> v1::$name {
                v1::$name { $( $field: Json::into_proto(self.$field), )* }
            }
        }
    )+ };
}

mirror! {
    Failure { message: String, error_type: String, details: Option<PayloadJson>, non_retryable: bool }
    RetryPolicy {
        max_attempts: u32, initial_interval_ms: u64, backoff_coefficient: Exact, max_interval_ms: u64, non_retryable_errors: Vec<String>,
        jitter: JitterWord,
    }
    Parent { execution_id: String, initiated_event_id: u64, detached: bool }
    ChildWorkflow {
        execution_id: String, workflow_type: String, workflow_id: String, task_queue: String, input: Option<PayloadJson>, execution_timeout_ms: u64,
    }
    WorkflowStarted {
        namespace: String, workflow_type: String, workflow_id: String, execution_id: String, first_execution_id: String, continued_from: String,
        parent: Option<Parent>, task_queue: String, input: Option<PayloadJson>, request_id: String, execution_timeout_ms: u64,
        workflow_task_timeout_ms: u64, config_generation: u64, config_number: u64, chain_execution_timeout_ms: u64, chain_deadline_ms: Option<i64>,
        sla_ms: u64,
    }
    WorkflowTaskCompleted { worker_id: String, build_id: String, sdk: String, seen_event_id: u64, consumed_signal_event_ids: Vec<u64> }
    WorkflowCompleted { output: Option<PayloadJson> }
    WorkflowFailed { failure: Option<Failure> }
    WorkflowCancelRequested { reason: String }
    WorkflowCancelled { reason: String }
    WorkflowTerminated { reason: String }
    WorkflowExecutionTimedOut { timeout: String }
    WorkflowContinuedAsNew { new_execution_id: String, new_workflow_type: String, input: Option<PayloadJson> }
    ActivityScheduled {
        activity_type: String, input: Option<PayloadJson>, task_queue: String, retry: Option<RetryPolicy>, start_to_close_ms: u64,
        schedule_to_start_ms: u64, heartbeat_timeout_ms: u64, schedule_to_close_ms: u64,
    }
    ActivityCompleted { activity_id: u64, output: Option<PayloadJson> }
    ActivityFailed { activity_id: u64, attempt: u32, failure: Option<Failure> }
    ActivityTimedOut { activity_id: u64, attempt: u32, timeout_type: String }
    ActivityCancelled { activity_id: u64 }
    ActivityCancelRequested { activity_id: u64 }
    LocalActivityScheduled { activity_type: String, input: Option<PayloadJson> }
    LocalActivityCompleted { activity_id: u64, output: Option<PayloadJson> }
    LocalActivityFailed { activity_id: u64, attempt: u32, failure: Option<Failure> }
    LocalActivityExhausted { activity_id: u64, attempt: u32, timeout_type: String }
    TimerStarted { timer_id: String, duration_ms: u64 }
    TimerFired { timer_id: String, started_event_id: u64 }
    TimerCancelled { timer_id: String, started_event_id: u64 }
    SignalReceived { signal_name: String, payload: Option<PayloadJson>, request_id: String }
    SideEffectRecorded { kind: String, name: String, value: Option<PayloadJson> }
    MarkerRecorded { name: String, details: Option<PayloadJson> }
    ChildWorkflowStarted { child: Option<ChildWorkflow> }
    ChildWorkflowSpawnedDetached { child: Option<ChildWorkflow> }
    ChildWorkflowCompleted { started_event_id: u64, output: Option<PayloadJson> }
    ChildWorkflowFailed { started_event_id: u64, failure: Option<Failure> }
    ChildWorkflowCancelRequested { started_event_id: u64 }
}

macro_rules! kinds {
    ($($name:ident)+) => {
        /// The variant's name and its fields.
        pub(super) fn write(kind: Kind) -> (&'static str, Box<RawValue>) {
            match kind {
                $( Kind::$name(it) => (stringify!($name), raw(&$name::from_proto(it))), )+
            }
        }

        /// Reads the fields of a variant.
        pub(super) fn read(name: &str, data: &RawValue) -> Result<Kind, WireError> {
            match name {
                $( stringify!($name) => parse::<$name>(data).map(|it| Kind::$name(it.into_proto())), )+
                unknown => Err(unknown_word("type", unknown, concat!("the event types of this version", $( ", ", stringify!($name) ),+))),
            }
        }
    };
}

kinds! {
    WorkflowStarted WorkflowTaskCompleted WorkflowCompleted WorkflowFailed WorkflowCancelRequested WorkflowCancelled WorkflowTerminated
    WorkflowExecutionTimedOut WorkflowContinuedAsNew ActivityScheduled ActivityCompleted ActivityFailed ActivityTimedOut ActivityCancelled
    ActivityCancelRequested LocalActivityScheduled LocalActivityCompleted LocalActivityFailed LocalActivityExhausted TimerStarted TimerFired TimerCancelled SignalReceived SideEffectRecorded MarkerRecorded ChildWorkflowStarted
    ChildWorkflowSpawnedDetached ChildWorkflowCompleted ChildWorkflowFailed ChildWorkflowCancelRequested
}

fn raw<T: Serialize>(data: &T) -> Box<RawValue> {
    serde_json::value::to_raw_value(data).expect("these types always serialize")
}

fn parse<'a, T: Deserialize<'a>>(data: &'a RawValue) -> Result<T, WireError> {
    serde_json::from_str(data.get()).map_err(|error| WireError::Json { field: "data".into(), problem: error.to_string() })
}
