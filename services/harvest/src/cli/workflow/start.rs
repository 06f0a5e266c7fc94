//! `harvest workflow start`.

use super::result;
use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input;
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_frontend::json::StartedJson;
use harvest_proto::v1;
use std::path::PathBuf;
use std::time::Duration;

/// Starts a workflow, or finds the open run of the same id.
#[derive(Debug, Args)]
pub struct Start {
    /// The workflow's type, as workers register it.
    #[arg(value_name = "TYPE", value_parser = input::name)]
    workflow_type: String,
    /// The business key; the server makes one up when it is not given.
    #[arg(long, value_name = "WORKFLOW_ID", value_parser = input::name)]
    id: Option<String>,
    /// The argument, as JSON.
    #[arg(long, value_name = "JSON", conflicts_with = "input_file")]
    input: Option<String>,
    /// A file with the argument as JSON; - is standard input.
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Where its tasks wait.
    #[arg(long, value_parser = input::name, default_value = "default")]
    queue: String,
    /// Repeating a start with the same request id repeats its answer.
    #[arg(long, value_parser = input::name)]
    request_id: Option<String>,
    /// How long the run may take, e.g. 1h.
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    execution_timeout: Option<Duration>,
    /// After how long the run counts as late, e.g. 2h; nothing happens to it then.
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    sla: Option<Duration>,
    /// Fail when a run of the same id is open.
    #[arg(long)]
    fail_if_running: bool,
    /// Wait for the outcome and show it.
    #[arg(long)]
    wait: bool,
}

impl Start {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let policy = if self.fail_if_running { v1::ConflictPolicy::Fail } else { v1::ConflictPolicy::UseExisting };
        let request = v1::StartWorkflowRequest {
            namespace: fleet.namespace.clone(),
            workflow_type: self.workflow_type,
            workflow_id: self.id.unwrap_or_default(),
            input: input::payload("input", self.input, self.input_file)?,
            task_queue: self.queue,
            request_id: fleet.request_id(self.request_id),
            execution_timeout_ms: self.execution_timeout.map(input::millis),
            conflict_policy: policy.into(),
            workflow_task_timeout_ms: None,
            eager_worker_id: String::new(),
            sla_ms: self.sla.map(input::millis),
        };
        let reply = fleet.workflows(Duration::ZERO, request, |mut client, call| async move { client.start_workflow(call).await }).await?;
        for warning in &reply.warnings {
            output::remark(format_args!("warning: {}", output::printable(warning)));
        }
        let workflow = v1::WorkflowRef { namespace: fleet.namespace.clone(), execution_id: reply.execution_id.clone(), ..Default::default() };
        if self.wait {
            return result::show(fleet, workflow, None).await;
        }
        match fleet.output {
            Output::Json => output::json(&StartedJson::from(reply))?,
            Output::Table => output::fields([
                ("Execution id", reply.execution_id),
                ("Workflow id", reply.workflow_id),
                ("Type", reply.workflow_type),
                ("State", reply.state),
                ("Started", if reply.started_fresh { "now".to_owned() } else { "before".to_owned() }),
            ])?,
        }
        Ok(())
    }
}
