//! What attributes say, and what applies where a call leaves something open.

use crate::command::{ActivityOptions, ScheduleActivity};
use harvest_ids::{ActivityType, DurationMs, WorkflowType};
use std::collections::BTreeMap;

/// What workers have registered in one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Types {
    /// Attributes of activities.
    pub activities: BTreeMap<ActivityType, ActivityOptions>,
    /// Attributes of workflows.
    pub workflows: BTreeMap<WorkflowType, WorkflowOptions>,
}

/// What the attribute of a workflow says, each absent unless it is declared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkflowOptions {
    /// The longest that one run may take.
    pub execution_timeout: Option<DurationMs>,
    /// The longest that a chain which begins with it may live.
    pub chain_execution_timeout: Option<DurationMs>,
    /// After how long a run counts as late.
    pub sla: Option<DurationMs>,
}

/// The options in force, field by field: the call site's, else those of the activity's attribute, else the worker's floor. What all leave open
/// is for [`crate::retry::RetryPolicy::default`] (three attempts) and no limit. The attribute is the registered one, so that a caller that
/// knows the activity by name alone gets the same.
pub fn resolve(schedule: &ScheduleActivity, registered: Option<&ActivityOptions>) -> ActivityOptions {
    let floor = ActivityOptions { retry: schedule.floor.retry.clone(), start_to_close: schedule.floor.start_to_close, ..ActivityOptions::default() };
    or(or(schedule.options.clone(), registered.unwrap_or(&schedule.attribute)), &floor)
}

fn or(first: ActivityOptions, fallback: &ActivityOptions) -> ActivityOptions {
    ActivityOptions {
        task_queue: first.task_queue.or_else(|| fallback.task_queue.clone()),
        retry: first.retry.or_else(|| fallback.retry.clone()),
        start_to_close: first.start_to_close.or(fallback.start_to_close),
        schedule_to_start: first.schedule_to_start.or(fallback.schedule_to_start),
        heartbeat_timeout: first.heartbeat_timeout.or(fallback.heartbeat_timeout),
        schedule_to_close: first.schedule_to_close.or(fallback.schedule_to_close),
    }
}
