//! The first lines of every binary: arguments, configuration, logs, crash point, tokio, signals; then the service; then draining.

use crate::config::{self, Settings};
use crate::{Health, Shutdown, clock, crash, telemetry};
use clap::Parser;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long tasks may take to end after the service has returned.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments that every service takes.
#[derive(Debug, Clone, Default, Parser)]
#[command(version, about = "A service of a Harvest fleet. Every key of its configuration can be set by HARVEST_<KEY> too.")]
pub struct Arguments {
    /// TOML file that overrides the defaults.
    #[arg(long, value_name = "FILE", env = "HARVEST_CONFIG_FILE")]
    pub config: Option<PathBuf>,
    /// Prints the configuration in force, with where each value comes from, and ends.
    #[arg(long)]
    pub print_config: bool,
    /// Prints the commented defaults and ends.
    #[arg(long)]
    pub print_defaults: bool,
}

/// What a service gets from its process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Begins when the process should end.
    pub shutdown: Shutdown,
    /// Where the service says that it is ready.
    pub health: Health,
}

/// Runs a service as a process of its own: reads the arguments and the configuration (naming all faults before any port is bound), sets up
/// logs, the crash point and signals, runs `service` until it returns, and drains the tasks of the process.
///
/// Exit codes: 0 ended in order, 1 the service failed, 2 bad arguments or configuration.
pub fn main<C, F>(name: &'static str, service: impl FnOnce(C, Process) -> F) -> ExitCode
where
    C: Settings,
    F: Future<Output = anyhow::Result<()>>,
{
    let arguments = Arguments::parse();
    if arguments.print_defaults {
        print!("{}", C::DEFAULTS);
        return ExitCode::SUCCESS;
    }
    let loaded = match config::load::<C>(arguments.config.as_deref(), std::env::vars()) {
        Ok(loaded) => loaded,
        Err(faults) => {
            eprintln!("{name}: {faults}");
            return ExitCode::from(2);
        }
    };
    if arguments.print_config {
        print!("{}", loaded.print());
        return ExitCode::SUCCESS;
    }
    telemetry::init();
    if let Err(error) = crash::arm_from_environment() {
        eprintln!("{name}: {error}");
        return ExitCode::from(2);
    }
    if let Err(error) = clock::skew_from_environment() {
        eprintln!("{name}: {error}");
        return ExitCode::from(2);
    }
    if !loaded.unused_variables.is_empty() {
        tracing::debug!(variables = ?loaded.unused_variables, "environment variables that name no key of this service");
    }
    match run(name, loaded.settings, service) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(service = name, error = format!("{error:#}"), "ended by an error");
            ExitCode::FAILURE
        }
    }
}

fn run<C, F>(name: &'static str, settings: C, service: impl FnOnce(C, Process) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name(name).build()?;
    let result = runtime.block_on(async {
        let process = Process { shutdown: Shutdown::on_signals()?, health: Health::new() };
        let shutdown = process.shutdown.clone();
        let result = service(settings, process).await;
        shutdown.drain(DRAIN_TIMEOUT).await;
        result
    });
    // Blocking calls that never return must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    if result.is_ok() {
        tracing::info!(service = name, "ended");
    }
    result
}
