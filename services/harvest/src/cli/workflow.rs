//! `harvest workflow`.

mod cancel;
mod get;
mod history;
mod list;
mod pause;
mod query;
mod result;
mod resume;
mod signal;
mod start;
mod terminate;

use super::connection::Connection;
use super::error::CliError;
use clap::Subcommand;

/// Start workflows, talk to them, look at them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Starts a workflow, or finds the open run of the same id.
    Start(start::Start),
    /// Lists workflow runs, newest first.
    List(list::List),
    /// Describes a workflow run: its state, open activities, and why it is blocked.
    Get(get::Get),
    /// Shows the events of a workflow run. As JSON it is an array that a replay reads.
    History(history::History),
    /// Waits for the outcome of a workflow and shows it; follows continue-as-new. Exit code 4 unless it completed.
    Result(result::Outcome),
    /// Sends a signal to a workflow.
    Signal(signal::Signal),
    /// Asks a workflow a question; leaves no trace. Prints the answer as JSON.
    Query(query::Query),
    /// Asks a workflow to cancel itself.
    Cancel(cancel::Cancel),
    /// Ends a workflow from outside, without asking it.
    Terminate(terminate::Terminate),
    /// Stops handing out a workflow's tasks until it is resumed.
    Pause(pause::Pause),
    /// Lets a paused workflow go on.
    Resume(resume::Resume),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// [`CliError`].
    pub async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        match self {
            Self::Start(command) => command.run(fleet).await,
            Self::List(command) => command.run(fleet).await,
            Self::Get(command) => command.run(fleet).await,
            Self::History(command) => command.run(fleet).await,
            Self::Result(command) => command.run(fleet).await,
            Self::Signal(command) => command.run(fleet).await,
            Self::Query(command) => command.run(fleet).await,
            Self::Cancel(command) => command.run(fleet).await,
            Self::Terminate(command) => command.run(fleet).await,
            Self::Pause(command) => command.run(fleet).await,
            Self::Resume(command) => command.run(fleet).await,
        }
    }
}
