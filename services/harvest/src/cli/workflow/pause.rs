//! `harvest workflow pause`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::{self, Run};
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_proto::v1;
use serde_json::json;
use std::time::Duration;

/// Stops handing out a workflow's tasks until it is resumed.
#[derive(Debug, Args)]
pub struct Pause {
    #[command(flatten)]
    run: Run,
    /// When it goes on by itself, e.g. 1h; after 24h without it, which is also the most.
    #[arg(long = "for", value_name = "SPAN", value_parser = input::span)]
    longest: Option<Duration>,
    /// Why, for people.
    #[arg(long, default_value = "")]
    reason: String,
    /// Repeating it with the same request id does it once.
    #[arg(long, value_parser = input::name)]
    request_id: Option<String>,
}

impl Pause {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let request = v1::PauseWorkflowRequest {
            workflow: Some(self.run.reference(&fleet.namespace)),
            reason: self.reason,
            request_id: fleet.request_id(self.request_id),
            longest_ms: self.longest.map(input::millis),
        };
        let reply = fleet.workflows(Duration::ZERO, request, |mut client, call| async move { client.pause_workflow(call).await }).await?;
        match fleet.output {
            Output::Json => output::json(&json!({ "paused": true, "changed": reply.changed, "execution_id": reply.execution_id }))?,
            Output::Table if reply.changed => output::line(format_args!("paused: {}", reply.execution_id))?,
            Output::Table => output::line(format_args!("paused already, as it was: {}", reply.execution_id))?,
        }
        Ok(())
    }
}
