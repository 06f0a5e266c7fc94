//! `harvest workflow signal`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::{self, Run};
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_proto::v1;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Sends a signal to a workflow.
#[derive(Debug, Args)]
pub struct Signal {
    #[command(flatten)]
    run: Run,
    /// The signal's name.
    #[arg(long, value_parser = input::name)]
    name: String,
    /// What it brings, as JSON.
    #[arg(long, value_name = "JSON", conflicts_with = "payload_file")]
    payload: Option<String>,
    /// A file with what it brings as JSON; - is standard input.
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Repeating a signal with the same request id sends it once.
    #[arg(long, value_parser = input::name)]
    request_id: Option<String>,
}

impl Signal {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let request = v1::SignalWorkflowRequest {
            workflow: Some(self.run.reference(&fleet.namespace)),
            signal_name: self.name,
            payload: input::payload("payload", self.payload, self.payload_file)?,
            request_id: fleet.request_id(self.request_id),
        };
        let reply = fleet.workflows(Duration::ZERO, request, |mut client, call| async move { client.signal_workflow(call).await }).await?;
        match fleet.output {
            Output::Json => output::json(&json!({ "signal_delivered": reply.signal_delivered, "execution_id": reply.execution_id }))?,
            Output::Table if reply.signal_delivered => output::line(format_args!("delivered to {}", reply.execution_id))?,
            Output::Table => output::line(format_args!("{} had it already", reply.execution_id))?,
        }
        Ok(())
    }
}
