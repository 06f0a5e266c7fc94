//! `harvest workflow query`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input::{self, Run};
use crate::cli::output;
use clap::Args;
use harvest_frontend::json;
use harvest_proto::v1;
use std::path::PathBuf;
use std::time::Duration;

/// Asks a workflow a question; leaves no trace. Prints the answer as JSON.
#[derive(Debug, Args)]
pub struct Query {
    #[command(flatten)]
    run: Run,
    /// The query's name.
    #[arg(long, value_parser = input::name)]
    name: String,
    /// Its argument, as JSON.
    #[arg(long, value_name = "JSON", conflicts_with = "args_file")]
    args: Option<String>,
    /// A file with its argument as JSON; - is standard input.
    #[arg(long, value_name = "FILE")]
    args_file: Option<PathBuf>,
    /// How long to wait for a worker.
    #[arg(long, value_name = "SPAN", value_parser = input::span, default_value = "5s")]
    wait: Duration,
}

impl Query {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let request = v1::QueryWorkflowRequest {
            workflow: Some(self.run.reference(&fleet.namespace)),
            query_name: self.name,
            args: input::payload("args", self.args, self.args_file)?,
            timeout_ms: input::millis(self.wait),
        };
        let reply = fleet.workflows(self.wait, request, |mut client, call| async move { client.query_workflow(call).await }).await?;
        output::line(json::payload(reply.result).as_deref().map_or("null", |raw| raw.get()))
    }
}
