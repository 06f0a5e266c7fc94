//! The `harvest` command.

use clap::Parser as _;
use harvest::cli::Cli;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse(); // usage errors end here, with exit code 2
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            harvest::cli::output::remark(format_args!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let output = cli.output();
    let result = runtime.block_on(cli.run());
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report(output);
            ExitCode::from(error.exit_code())
        }
    }
}
