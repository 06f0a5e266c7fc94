//! `harvest workflow list`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input;
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_frontend::json::ListJson;
use harvest_proto::v1;
use std::time::Duration;

/// The largest page that the server gives.
const PAGE: u32 = 200;

/// Lists workflow runs, newest first.
#[derive(Debug, Args)]
pub struct List {
    /// Only runs in this state: RUNNING, PAUSED, SUSPENDED (both), COMPLETED, FAILED, CANCELLED, TERMINATED, TIMED_OUT or CONTINUED_AS_NEW.
    #[arg(long, value_parser = input::name)]
    state: Option<String>,
    /// Only runs of this type.
    #[arg(long = "type", value_name = "TYPE", value_parser = input::name)]
    workflow_type: Option<String>,
    /// Only runs of this business key.
    #[arg(long = "id", value_name = "WORKFLOW_ID", value_parser = input::name)]
    workflow_id: Option<String>,
    /// Only runs that were found to be late, open or closed; false = only others.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    sla_breached: Option<bool>,
    /// At most this many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// From the end of an earlier list.
    #[arg(long, value_parser = input::name)]
    cursor: Option<String>,
}

impl List {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let mut request = v1::ListWorkflowsRequest {
            namespace: fleet.namespace.clone(),
            state: self.state.unwrap_or_default().to_uppercase(),
            workflow_type: self.workflow_type.unwrap_or_default(),
            workflow_id: self.workflow_id.unwrap_or_default(),
            page_size: 0,
            page_token: self.cursor.unwrap_or_default(),
            sla_breached: self.sla_breached,
        };
        let mut list = v1::ListWorkflowsResponse::default();
        let mut left = self.limit;
        loop {
            request.page_size = left.min(PAGE);
            let page = fleet.workflows(Duration::ZERO, request.clone(), |mut client, call| async move { client.list_workflows(call).await }).await?;
            left = left.saturating_sub(u32::try_from(page.workflows.len()).unwrap_or(u32::MAX));
            list.workflows.extend(page.workflows);
            list.next_page_token.clone_from(&page.next_page_token);
            request.page_token = page.next_page_token;
            if left == 0 || request.page_token.is_empty() {
                break;
            }
        }
        match fleet.output {
            Output::Json => output::json(&ListJson::from(list))?,
            Output::Table => {
                let row = |it: v1::WorkflowInfo| {
                    let late = if it.sla_breached_at_ms != 0 { " (late)" } else { "" };
                    let blocked = if it.blocked.is_some() { " (blocked)" } else { "" };
                    let state = format!("{}{late}{blocked}", it.state);
                    [
                        it.execution_id,
                        it.workflow_type,
                        it.workflow_id,
                        state,
                        it.task_queue,
                        output::instant(it.started_at_ms),
                        output::instant(it.closed_at_ms),
                    ]
                };
                let headers = ["EXECUTION ID", "TYPE", "WORKFLOW ID", "STATE", "QUEUE", "STARTED", "CLOSED"];
                output::table(headers, list.workflows.into_iter().map(row), "no workflows")?;
                if !list.next_page_token.is_empty() {
                    output::remark(format_args!("more: --cursor {}", list.next_page_token));
                }
            }
        }
        Ok(())
    }
}
