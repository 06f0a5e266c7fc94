//! `harvest workflow resume`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::{self, Run};
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_proto::v1;
use serde_json::json;
use std::time::Duration;

/// Lets a paused workflow go on.
#[derive(Debug, Args)]
pub struct Resume {
    #[command(flatten)]
    run: Run,
    /// Repeating it with the same request id does it once.
    #[arg(long, value_parser = input::name)]
    request_id: Option<String>,
}

impl Resume {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let request = v1::ResumeWorkflowRequest { workflow: Some(self.run.reference(&fleet.namespace)), request_id: fleet.request_id(self.request_id) };
        let reply = fleet.workflows(Duration::ZERO, request, |mut client, call| async move { client.resume_workflow(call).await }).await?;
        match fleet.output {
            Output::Json => output::json(&json!({ "paused": false, "changed": reply.changed, "execution_id": reply.execution_id }))?,
            Output::Table if reply.changed => output::line(format_args!("goes on: {}", reply.execution_id))?,
            Output::Table => output::line(format_args!("was not paused: {}", reply.execution_id))?,
        }
        Ok(())
    }
}
