//! Histories as files: exported from a fleet, committed, replayed against the code of today.

use anyhow::Context as _;
use harvest_proto::v1;
use harvest_sdk::{WorkflowRegistration, WorkflowReplayer};
use harvest_wire::event;
use harvest_wire::json::{decode_history, encode_history};
use std::path::{Path, PathBuf};

/// The folder of the committed files.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("histories")
}

/// All files with their names, in order.
///
/// # Errors
/// When the folder or a file cannot be read.
pub fn all() -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder()).context("the folder of histories")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, std::fs::read_to_string(&path).with_context(|| path.display().to_string())?));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the text of a file.
///
/// # Errors
/// When it is not a history.
pub fn read(text: &str) -> anyhow::Result<Vec<v1::Event>> {
    Ok(decode_history(text)?.iter().map(event::to_proto).collect())
}

/// Writes events as a file, one event a line.
///
/// # Errors
/// When the events are not a history, or the file cannot be written.
pub fn write(name: &str, events: Vec<v1::Event>) -> anyhow::Result<()> {
    let events = event::list(events)?;
    let lines: Vec<String> =
        events.iter().map(|event| encode_history(std::slice::from_ref(event))).map(|line| line.trim_matches(['[', ']']).to_owned()).collect();
    let path = folder().join(format!("{name}.json"));
    std::fs::write(&path, format!("[\n{}\n]\n", lines.join(",\n"))).with_context(|| path.display().to_string())
}

/// The names of the event variants in a history.
pub fn variants(events: &[v1::Event]) -> Vec<String> {
    let name = |event: &v1::Event| harvest_wire::json::EventJson::from_proto(event.clone()).map(|json| json.kind);
    events.iter().filter_map(name).collect()
}

/// Replays one history.
///
/// # Errors
/// When it does not fit the code.
pub fn replay(events: Vec<v1::Event>, workflows: Vec<WorkflowRegistration>) -> anyhow::Result<()> {
    Ok(WorkflowReplayer::new().workflows(workflows).replay(events)?)
}
