//! Results for people and for programs.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use harvest_ids::Timestamp;
use serde::Serialize;

/// How results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs: the JSON of the HTTP API.
    Json,
}

/// Prints JSON.
///
/// # Errors
/// When the value does not serialize: a bug.
pub fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints a table; a remark when it has no rows.
pub fn table<const N: usize>(headers: [&str; N], rows: impl IntoIterator<Item = [String; N]>, empty: &str) {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(headers);
    let mut count = 0;
    for row in rows {
        table.add_row(row.map(|cell| printable(&cell)));
        count += 1;
    }
    if count == 0 {
        println!("{empty}");
    } else {
        println!("{table}");
    }
}

/// Prints named values, leaving out empty ones.
pub fn fields<const N: usize>(fields: [(&str, String); N]) {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for (name, value) in fields {
        if !value.is_empty() {
            table.add_row([name.to_owned(), printable(&value)]);
        }
    }
    println!("{table}");
}

/// An instant for people; empty for 0.
pub fn instant(millis: i64) -> String {
    if millis == 0 { String::new() } else { Timestamp::from_millis(millis).rfc3339() }
}

/// Text of others without control characters, which a terminal would obey.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter }).collect()
}
