//! docs/reference has every metric and every key of the configuration, as the code has them.
#![allow(clippy::unwrap_used)] // tests: also in their helpers

use harvest_runtime::metrics::{Kind, catalogue};
use std::path::Path;

const METRICS: &str = include_str!("../../../docs/reference/metrics.md");
const CONFIGURATION: &str = include_str!("../../../docs/reference/configuration.md");

fn rows(page: &str) -> Vec<&str> {
    page.lines().filter(|line| line.starts_with("| `")).collect()
}

#[test]
fn every_metric_has_its_row_and_every_row_its_metric() {
    let expected: Vec<String> = catalogue()
        .iter()
        .map(|metric| {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            format!("| `{}` | {kind} | {} | {} |", metric.prometheus_name(), metric.labels.join(", "), metric.help)
        })
        .collect();
    let missing: Vec<&String> = expected.iter().filter(|row| !rows(METRICS).contains(&row.as_str())).collect();
    assert!(missing.is_empty(), "metrics.md lacks:\n{missing:#?}");
    assert_eq!(rows(METRICS).len(), expected.len(), "metrics.md has a row of a metric that does not exist");
}

#[test]
fn every_key_of_every_service_has_its_row_with_its_default() {
    for service in ["frontend", "history", "matching", "timer-scanner", "config"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../deploy/config/{service}.default.toml"));
        let defaults = std::fs::read_to_string(path).unwrap();
        let section = CONFIGURATION.split("\n## ").find(|section| section.starts_with(&format!("{service}\n"))).unwrap();
        let (mut table, mut keys) = (String::new(), 0);
        for line in defaults.lines().filter(|line| !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[') {
                table = format!("{}.", name.trim_end_matches(']'));
            } else if let Some((key, value)) = line.split_once(" = ") {
                let row = format!("| `{table}{key}` | `{value}` |");
                assert!(rows(section).iter().any(|found| found.starts_with(&row)), "configuration.md, {service}: no row begins with {row}");
                keys += 1;
            }
        }
        assert_eq!(rows(section).len(), keys, "configuration.md, {service}: a row of a key that does not exist");
    }
}

/// All Rust of a folder but the catalogue itself.
fn sources(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("runtime/src/metrics") || path.ends_with("runtime/src/metrics.rs") {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_page_says_which_metrics_nothing_records() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut code = String::new();
    for group in ["services", "shared"] {
        for entry in std::fs::read_dir(root.join(group)).unwrap() {
            sources(&entry.unwrap().path().join("src"), &mut code);
        }
    }
    let words: std::collections::BTreeSet<&str> = code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
    let source = std::fs::read_to_string(root.join("shared/runtime/src/metrics/catalogue.rs")).unwrap();
    let idle = METRICS.split_once("\n## Not recorded yet\n").map_or("", |(_, section)| section);
    for metric in catalogue() {
        let (before, _) = source.split_once(&format!(" = \"{}\"", metric.name)).unwrap();
        let constant = before.rsplit('\n').next().unwrap().trim().split(':').next().unwrap();
        let name = metric.prometheus_name();
        let (recorded, said) = (words.contains(constant), !idle.contains(&format!("| `{name}` |")));
        assert_eq!(recorded, said, "metrics.md: {name} is in the wrong section; is it recorded now: {recorded}");
    }
}
