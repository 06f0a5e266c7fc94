//! The bounds that the core enforces, handed in as values.

use harvest_ids::DurationMs;

/// Bounds in force at one decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most events in one run's history; the run fails past it unless the decision continues as new.
    pub max_history_events: u64,
    /// Most bytes in one run's history.
    pub max_history_bytes: u64,
    /// Most open activities, timers and children of a run, each.
    pub max_open_items: usize,
    /// Most commands in one workflow task.
    pub max_commands: usize,
    /// Most bytes of one payload.
    pub max_payload_bytes: usize,
    /// Most bytes of a signal's payload.
    pub max_signal_bytes: usize,
    /// Most request ids that a chain remembers; the oldest go first.
    pub max_request_ids: usize,
    /// Most unread signals that a run keeps.
    pub max_unread_signals: usize,
    /// Most bytes of memory that details of heartbeats may bring a run to; they are in no history, so that nothing else bounds them.
    pub max_state_bytes: u64,
    /// Panics of workflow code in a row after which the run fails with `HandlerPanic`.
    pub workflow_panic_max_attempts: u32,
    /// Fleet ceiling of a specified execution timeout.
    pub max_workflow_execution_timeout: Option<DurationMs>,
    /// Fleet ceiling of a chain's lifetime, and the lifetime of chains that declare none.
    pub max_workflow_chain_timeout: Option<DurationMs>,
    /// The longest that a run stays paused without somebody resuming it.
    pub max_workflow_pause: DurationMs,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_history_events: 50_000,
            max_history_bytes: 50 * 1024 * 1024,
            max_open_items: 10_000,
            max_commands: 10_000,
            max_payload_bytes: 2 * 1024 * 1024,
            max_signal_bytes: 256 * 1024,
            max_request_ids: 10_000,
            max_unread_signals: 20_000,
            max_state_bytes: 64 * 1024 * 1024,
            workflow_panic_max_attempts: 3,
            max_workflow_execution_timeout: None,
            max_workflow_chain_timeout: None,
            max_workflow_pause: DurationMs::from_millis_const(24 * 3_600 * 1_000),
        }
    }
}
