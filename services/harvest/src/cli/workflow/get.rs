//! `harvest workflow get`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::Run;
use crate::cli::output::{self, Output};
use anyhow::Context as _;
use clap::Args;
use harvest_frontend::json::WorkflowJson;
use harvest_proto::v1;
use std::time::Duration;

/// Describes a workflow run: its state, open activities, and why it is blocked.
#[derive(Debug, Args)]
pub struct Get {
    #[command(flatten)]
    run: Run,
}

impl Get {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let request = v1::GetWorkflowRequest { workflow: Some(self.run.reference(&fleet.namespace)) };
        let reply = fleet.workflows(Duration::ZERO, request, |mut client, call| async move { client.get_workflow(call).await }).await?;
        let it = reply.workflow.context("the answer has no workflow")?;
        match fleet.output {
            Output::Json => output::json(&WorkflowJson::from(it))?,
            Output::Table => show(it)?,
        }
        Ok(())
    }
}

fn show(it: v1::WorkflowInfo) -> Result<(), CliError> {
    let blocked = it.blocked.map(|block| {
        let tries = format!("since {}, tried {} times", output::instant(block.since_ms), block.count);
        format!("{}\n{tries}\nat event {}: expected {}, found {}", block.message, block.event_id, block.expected, block.actual)
    });
    let span = |millis| match millis {
        0 => String::new(),
        millis => humantime::format_duration(Duration::from_millis(millis)).to_string(),
    };
    let paused = match it.paused_at_ms {
        0 => String::new(),
        since => format!("since {}, until {}\n{}", output::instant(since), output::instant(it.paused_until_ms), it.pause_reason).trim_end().to_owned(),
    };
    let first = if it.first_execution_id == it.execution_id { String::new() } else { it.first_execution_id };
    output::fields([
        ("Execution id", it.execution_id),
        ("Type", it.workflow_type),
        ("Workflow id", it.workflow_id),
        ("Namespace", it.namespace),
        ("State", it.state),
        ("Blocked", blocked.unwrap_or_default()),
        ("Queue", it.task_queue),
        ("Started", output::instant(it.started_at_ms)),
        ("Closed", output::instant(it.closed_at_ms)),
        ("Paused", paused),
        ("Execution timeout", span(it.execution_timeout_ms)),
        ("Deadline", output::instant(it.deadline_at_ms)),
        ("SLA", span(it.sla_ms)),
        ("Late at", output::instant(it.sla_deadline_at_ms)),
        ("Found late", output::instant(it.sla_breached_at_ms)),
        ("Events", it.history_events.to_string()),
        ("First run", first),
        ("Continued as", it.continued_as),
        ("Parent", it.parent_execution_id),
    ])?;
    if it.pending_activities.is_empty() {
        return Ok(());
    }
    output::line("")?;
    let row = |it: v1::PendingActivity| {
        let failure = it.last_failure.map(|failure| format!("{}: {}", failure.error_type, failure.message)).unwrap_or_default();
        [it.activity_id.to_string(), it.activity_type, it.state, it.attempt.to_string(), output::instant(it.retry_at_ms), it.worker_id, failure]
    };
    let headers = ["ACTIVITY", "TYPE", "STATE", "ATTEMPT", "RETRY AT", "WORKER", "LAST FAILURE"];
    output::table(headers, it.pending_activities.into_iter().map(row), "")
}
