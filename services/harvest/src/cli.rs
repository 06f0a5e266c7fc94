//! The commands, one file each.

mod dev;
mod migrate;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Durable workflows: run an engine, look at runs and talk to them.
#[derive(Debug, Parser)]
#[command(name = "harvest", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::Dev),
    Migrate(migrate::Migrate),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let runtime = match tokio::runtime::Runtime::new() {
            Ok(runtime) => runtime,
            Err(error) => {
                eprintln!("harvest: {error}");
                return ExitCode::FAILURE;
            }
        };
        let result = runtime.block_on(async {
            match self.command {
                Command::Dev(dev) => dev.run().await,
                Command::Migrate(migrate) => migrate.run().await,
            }
        });
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("harvest: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}
