//! `harvest workflow cancel`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::{self, Run};
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_proto::v1;
use serde_json::json;
use std::time::Duration;

/// Asks a workflow to cancel itself.
#[derive(Debug, Args)]
pub struct Cancel {
    #[command(flatten)]
    run: Run,
    /// Why, for people.
    #[arg(long, default_value = "")]
    reason: String,
    /// Repeating it with the same request id does it once.
    #[arg(long, value_parser = input::name)]
    request_id: Option<String>,
}

impl Cancel {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let request = v1::CancelWorkflowRequest {
            workflow: Some(self.run.reference(&fleet.namespace)),
            reason: self.reason,
            request_id: fleet.request_id(self.request_id),
        };
        let reply = fleet.workflows(Duration::ZERO, request, |mut client, call| async move { client.cancel_workflow(call).await }).await?;
        match fleet.output {
            Output::Json => output::json(&json!({ "cancel_requested": true, "execution_id": reply.execution_id }))?,
            Output::Table => output::line(format_args!("asked to cancel: {}", reply.execution_id))?,
        }
        Ok(())
    }
}
