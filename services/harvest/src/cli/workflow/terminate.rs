//! `harvest workflow terminate`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::{self, Run};
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_proto::v1;
use serde_json::json;
use std::time::Duration;

/// Ends a workflow from outside, without asking it.
#[derive(Debug, Args)]
pub struct Terminate {
    #[command(flatten)]
    run: Run,
    /// Why, for people.
    #[arg(long, default_value = "")]
    reason: String,
    /// Repeating it with the same request id does it once.
    #[arg(long, value_parser = input::name)]
    request_id: Option<String>,
}

impl Terminate {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let request = v1::TerminateWorkflowRequest {
            workflow: Some(self.run.reference(&fleet.namespace)),
            reason: self.reason,
            request_id: fleet.request_id(self.request_id),
        };
        let reply = fleet.workflows(Duration::ZERO, request, |mut client, call| async move { client.terminate_workflow(call).await }).await?;
        match fleet.output {
            Output::Json => output::json(&json!({ "terminated": true, "execution_id": reply.execution_id }))?,
            Output::Table => output::line(format_args!("terminated: {}", reply.execution_id))?,
        }
        Ok(())
    }
}
