//! The newtypes that every Harvest crate names things with.
//!
//! A value of one of these types is well-formed: the constructor is the only place where its shape is checked, so that no later
//! line has to. May depend on `std`, `thiserror`, `serde`, `uuid` and the stable hash; never on tokio or proto. Start at
//! [`text`] for names that users choose, [`execution_id`] for the id of a run, [`numbers`] for counters, [`time`] for clocks.

pub mod execution_id;
pub mod numbers;
pub mod text;
pub mod time;

pub use execution_id::{ExecutionId, ExecutionIdError};
pub use numbers::{ActivityId, Attempt, Epoch, EventId, SLOT_COUNT, ShardId, Slot};
pub use text::{ActivityType, Encoding, Namespace, QueryName, RequestId, SignalName, TaskQueue, TextError, TimerName, WorkerId, WorkflowId, WorkflowType};
pub use time::{DurationError, DurationMs, Timestamp};
