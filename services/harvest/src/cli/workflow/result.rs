//! `harvest workflow result`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::{self, Run};
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_frontend::json::{self, ResultJson};
use harvest_proto::v1;
use harvest_workflow_core::state::Status;
use std::time::Duration;

/// The wait of one call; longer waits are several.
const ONE_WAIT: Duration = Duration::from_secs(30);

/// Waits for the outcome of a workflow and shows it; follows continue-as-new. Exit code 4 unless it completed.
#[derive(Debug, Args)]
pub struct Outcome {
    #[command(flatten)]
    run: Run,
    /// How long to wait, e.g. 30s; without it, until there is an outcome.
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    wait: Option<Duration>,
}

impl Outcome {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        show(fleet, self.run.reference(&fleet.namespace), self.wait).await
    }
}

/// Waits for an outcome and shows it.
pub(super) async fn show(fleet: &Connection, workflow: v1::WorkflowRef, mut left: Option<Duration>) -> Result<(), CliError> {
    let reply = loop {
        let wait = left.map_or(ONE_WAIT, |left| left.min(ONE_WAIT));
        let request = v1::GetResultRequest { workflow: Some(workflow.clone()), wait_ms: input::millis(wait) };
        let reply = fleet.workflows(wait, request, |mut client, call| async move { client.get_result(call).await }).await?;
        left = left.map(|left| left.saturating_sub(wait));
        if reply.state != Status::Running.as_str() || left.is_some_and(|left| left.is_zero()) {
            break reply;
        }
    };
    let (state, message) = (reply.state.clone(), reply.failure.as_ref().map(|failure| output::printable(&failure.message)));
    let completed = state == Status::Completed.as_str();
    let shown = match fleet.output {
        Output::Json => output::json(&ResultJson::from(reply)),
        Output::Table if completed => output::line(json::payload(reply.output).as_deref().map_or("null", |raw| raw.get())),
        Output::Table => Ok(()),
    };
    // How the workflow ended is worth more than whether somebody still reads.
    if completed { shown } else { Err(CliError::Unsuccessful { state, message }) }
}
