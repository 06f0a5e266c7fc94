//! The benchmark as a test runs it: small, with its lines as JSON.

use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

/// Runs the benchmark and returns its lines.
pub async fn bench(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_harvest"));
    command.arg("bench").args(arguments).arg("--json").arg("--folder").arg(folder);
    for variable in ["HARVEST_BENCH_POSTGRES_URL", "HARVEST_BENCH_REDIS_URL", "HARVEST_BENCH_REDIS_PID"] {
        command.env_remove(variable);
    }
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), logs(folder));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ends of the processes' logs.
fn logs(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            all += &format!("{}:\n{}\n", path.display(), lines[lines.len().saturating_sub(20)..].join("\n"));
        }
    }
    all
}

/// A figure by its key.
pub fn count(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("no {key} in {line}"))
}
