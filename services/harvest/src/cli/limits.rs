//! `harvest limits`.

mod get;
mod set;

use super::connection::Connection;
use super::error::CliError;
use super::output;
use clap::Subcommand;
use harvest_proto::v1;
use std::time::Duration;

/// Fleet limits.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows the fleet limits in force.
    Get(get::Get),
    /// Changes fleet limits and waits until every shard has acknowledged the change.
    Set(set::Set),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// [`CliError`].
    pub async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        match self {
            Self::Get(command) => command.run(fleet).await,
            Self::Set(command) => command.run(fleet).await,
        }
    }
}

/// Prints limits for people.
fn show(limits: Option<v1::FleetLimits>, version: Option<v1::ConfigVersion>) -> Result<(), CliError> {
    let limits = limits.unwrap_or_default();
    let span = |millis: Option<u64>| millis.map_or_else(|| "none".to_owned(), |millis| humantime::format_duration(Duration::from_millis(millis)).to_string());
    let (execution, chain) = (span(limits.max_workflow_execution_timeout_ms), span(limits.max_workflow_chain_timeout_ms));
    let version = version.map(|version| format!("{}.{}", version.generation, version.number)).unwrap_or_default();
    output::fields([("Longest execution timeout", execution), ("Longest chain", chain), ("Version", version)])
}
