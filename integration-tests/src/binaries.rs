//! Where the programs under test are.

use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// The variable that names the folder; set by the developer command.
pub const FOLDER_VARIABLE: &str = "HARVEST_TEST_BIN";

/// The folder that cargo puts binaries in, seen from a test executable (`target/debug/deps/e2e-..`).
///
/// # Errors
/// When the test's own path is not known.
pub fn folder() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let executable = std::env::current_exe().context("the path of the test executable")?;
    let deps = executable.parent().context("the folder of the test executable")?;
    let folder = if deps.ends_with("deps") { deps.parent().unwrap_or(deps) } else { deps };
    Ok(folder.to_owned())
}

/// The path of one program.
///
/// # Errors
/// When it has not been built.
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    let path = folder()?.join(name);
    anyhow::ensure!(path.is_file(), "{} is not there: run `cargo build --workspace` first", path.display());
    Ok(path)
}

/// A program of the system, from PATH or the usual folders.
pub fn system(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder: PathBuf| Path::new(&folder).join(name)).find(|candidate| candidate.is_file())
}
