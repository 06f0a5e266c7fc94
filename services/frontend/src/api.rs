//! The calls of the edge, one file each, shared by gRPC and HTTP. Each validates, routes, and answers in the protocol's own messages.

pub(crate) mod answer_query;
pub(crate) mod cancel_workflow;
pub(crate) mod close_activity;
pub(crate) mod complete_workflow_task;
pub(crate) mod fail_workflow_task;
pub(crate) mod get_fleet_limits;
pub(crate) mod get_history;
pub(crate) mod get_result;
pub(crate) mod get_workflow;
pub(crate) mod heartbeat;
pub(crate) mod list_shards;
pub(crate) mod list_workers;
pub(crate) mod list_workflows;
pub(crate) mod patch_fleet_limits;
pub(crate) mod pause_workflow;
pub(crate) mod query_workflow;
pub(crate) mod reannounce;
pub(crate) mod resume_workflow;
pub(crate) mod signal_workflow;
pub(crate) mod start_workflow;
pub(crate) mod terminate_workflow;
