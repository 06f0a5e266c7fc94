//! Commands, one file each.
//!
//! Exit codes: 0 done, 1 error, 2 bad usage or input, 3 not found, 4 the workflow did not complete successfully (`workflow result`,
//! `workflow start --wait`).

pub mod bench;
pub mod connection;
pub mod dev;
pub mod error;
pub mod input;
pub mod limits;
pub mod migrate;
pub mod output;
pub mod shard;
pub mod worker;
pub mod workflow;

use clap::{Args, Parser, Subcommand};
use connection::Connection;
use error::CliError;
use output::Output;
use std::time::Duration;

/// Durable workflows: talk to a Harvest fleet, prepare its database, or run all of it here.
#[derive(Debug, Parser)]
#[command(
    name = "harvest",
    version,
    after_help = "Exit codes: 0 done, 1 error, 2 bad usage or input, 3 not found, 4 the workflow did not complete successfully."
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of all commands that talk to a fleet.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// A frontend's gRPC address.
    #[arg(long, global = true, value_name = "URL", env = "HARVEST_ADDRESS", value_parser = input::name, default_value = "http://127.0.0.1:7233")]
    pub address: String,
    /// The tenant.
    #[arg(long, global = true, env = "HARVEST_NAMESPACE", value_parser = input::name, default_value = "default")]
    pub namespace: String,
    /// For people or for programs.
    #[arg(long, short, global = true, value_enum, env = "HARVEST_OUTPUT", default_value_t = Output::Table)]
    pub output: Output,
    /// How long a call is tried, e.g. 10s.
    #[arg(long, global = true, value_name = "SPAN", value_parser = input::span, default_value = "10s")]
    pub timeout: Duration,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start workflows, talk to them, look at them.
    #[command(subcommand)]
    Workflow(workflow::Command),
    /// Connected workers.
    #[command(subcommand)]
    Worker(worker::Command),
    /// Shards and their owners.
    #[command(subcommand)]
    Shard(shard::Command),
    /// Fleet limits.
    #[command(subcommand)]
    Limits(limits::Command),
    Migrate(migrate::Migrate),
    Dev(Box<dev::Dev>),
    Bench(Box<bench::Bench>),
}

impl Cli {
    /// How results and errors are shown.
    pub fn output(&self) -> Output {
        self.global.output
    }

    /// Runs the command.
    ///
    /// # Errors
    /// [`CliError`], whose exit code says of which kind.
    pub async fn run(self) -> Result<(), CliError> {
        match self.command {
            Command::Workflow(command) => command.run(&Connection::open(&self.global).await?).await,
            Command::Worker(command) => command.run(&Connection::open(&self.global).await?).await,
            Command::Shard(command) => command.run(&Connection::open(&self.global).await?).await,
            Command::Limits(command) => command.run(&Connection::open(&self.global).await?).await,
            Command::Migrate(command) => command.run().await,
            Command::Dev(command) => Ok(command.run().await?),
            Command::Bench(command) => Ok(command.run().await?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }
}
