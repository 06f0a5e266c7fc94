//! Results for people and for programs.

use super::error::CliError;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use harvest_ids::Timestamp;
use serde::Serialize;
use std::fmt::Display;
use std::io::Write as _;

/// How results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs: the JSON of the HTTP API.
    Json,
}

/// Prints a line of a result.
///
/// # Errors
/// [`CliError::Output`] when standard output does not take it.
pub fn line(text: impl Display) -> Result<(), CliError> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}").and_then(|()| output.flush()).map_err(CliError::Output)
}

/// Says something beside the result, on standard error.
pub fn remark(text: impl Display) {
    if writeln!(std::io::stderr(), "{text}").is_err() {
        // There is no other place to say that.
    }
}

/// Prints JSON.
///
/// # Errors
/// [`CliError::Output`] when standard output does not take it; else when the value does not serialize: a bug.
pub fn json<T: Serialize>(value: &T) -> Result<(), CliError> {
    line(serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?)
}

/// Prints a table; a remark when it has no rows.
///
/// # Errors
/// [`CliError::Output`] when standard output does not take it.
pub fn table<const N: usize>(headers: [&str; N], rows: impl IntoIterator<Item = [String; N]>, empty: &str) -> Result<(), CliError> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(headers);
    let mut count = 0;
    for row in rows {
        table.add_row(row.map(|cell| printable(&cell)));
        count += 1;
    }
    if count == 0 { line(empty) } else { line(table) }
}

/// Prints named values, leaving out empty ones.
///
/// # Errors
/// [`CliError::Output`] when standard output does not take it.
pub fn fields<const N: usize>(fields: [(&str, String); N]) -> Result<(), CliError> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for (name, value) in fields {
        if !value.is_empty() {
            table.add_row([name.to_owned(), printable(&value)]);
        }
    }
    line(table)
}

/// An instant for people; empty for 0.
pub fn instant(millis: i64) -> String {
    if millis == 0 { String::new() } else { Timestamp::from_millis(millis).rfc3339() }
}

/// Text of others without control characters, which a terminal would obey.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter }).collect()
}
