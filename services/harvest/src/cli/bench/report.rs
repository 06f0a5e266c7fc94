//! Figures, as a table for people or as JSON lines.

use super::asleep::AsleepFigures;
use super::backlog::BacklogFigures;
use super::probe::{Rates, Usage, number};
use super::soak::SoakFigures;
use super::storm::StormFigures;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What one workload at one concurrency has cost. `docs/performance.md` explains each.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Its name.
    pub workload: &'static str,
    /// Clients at once.
    pub concurrency: u32,
    /// Units done in a second; a unit is a run if the workload does not say otherwise.
    pub runs_per_s: Option<f64>,
    /// The median time of a unit, milliseconds.
    pub p50_ms: Option<f64>,
    /// The time that 99 of 100 units keep within.
    pub p99_ms: Option<f64>,
    /// CPU seconds of each process per 1 000 units.
    pub cpu_s_per_1000_runs: BTreeMap<&'static str, f64>,
    /// Transactions that wrote, per unit.
    pub commits_per_run: Option<f64>,
    /// Statements, per unit.
    pub statements_per_run: Option<f64>,
    /// Bytes of WAL records, per unit.
    pub wal_bytes_per_run: Option<f64>,
    /// How late timers fired.
    pub timer_late_ms: Option<Percentiles>,
    /// What only this workload has.
    pub details: Option<Details>,
    /// Statements per unit by text, for `--explain`.
    #[serde(skip)]
    pub statements: Vec<(String, f64)>,
}

/// What only one workload has.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Details {
    /// A queue that nobody serves.
    Backlog(BacklogFigures),
    /// Open runs asleep.
    Asleep(AsleepFigures),
    /// Many starts at once.
    Storm(StormFigures),
    /// Work for long.
    Soak(SoakFigures),
}

/// Two percentiles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The value that 99 of 100 keep within.
    pub p99: f64,
}

/// The percentiles of values, `None` of none. Nearest rank: always one of the values.
pub fn percentiles(mut values: Vec<f64>) -> Option<Percentiles> {
    values.sort_by(f64::total_cmp);
    let rank = |percent: usize| values.get((values.len() * percent).div_ceil(100).saturating_sub(1)).copied().map(round);
    Some(Percentiles { p50: rank(50)?, p99: rank(99)? })
}

/// A statement on the leaves of one shard is the same as that on another's.
fn of_any_shard(text: &str) -> String {
    let mut parts = text.split("shard_");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |done, part| {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
        done + "shard_" + if rest.len() < part.len() { "N" } else { "" } + rest
    })
}

/// To three digits after the point.
pub fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Figures {
    /// Figures of `units` that took these milliseconds each, with the idle background taken off.
    pub fn of(workload: &'static str, concurrency: u32, units: u64, times_ms: Vec<f64>, usage: &Usage, idle: &Rates) -> Self {
        let units = number(units).max(1.0);
        let per_unit = |count: f64, background: f64| round(((count - background * usage.seconds) / units).max(0.0));
        let times = percentiles(times_ms);
        let spent = usage.spent.as_ref();
        let share = |text: &str, calls: f64| per_unit(calls, idle.statements.get(text).copied().unwrap_or(0.0));
        let mut by_text: BTreeMap<String, f64> = BTreeMap::new();
        for (text, calls) in spent.iter().flat_map(|spent| &spent.statements) {
            *by_text.entry(of_any_shard(text)).or_default() += share(text, number(*calls));
        }
        let mut statements: Vec<(String, f64)> = by_text.into_iter().collect();
        statements.sort_by(|left, right| right.1.total_cmp(&left.1));
        Self {
            workload,
            concurrency,
            runs_per_s: Some(round(units / usage.seconds)),
            p50_ms: times.map(|times| times.p50),
            p99_ms: times.map(|times| times.p99),
            cpu_s_per_1000_runs: usage.cpu_s.iter().map(|(name, used)| (*name, round(used * 1e3 / units))).collect(),
            commits_per_run: spent.map(|spent| per_unit(number(spent.commits), idle.commits)),
            statements_per_run: spent.map(|spent| per_unit(number(spent.statement_calls()), idle.statements.values().sum())),
            wal_bytes_per_run: spent.map(|spent| per_unit(number(spent.wal_bytes), idle.wal_bytes).round()),
            timer_late_ms: None,
            details: None,
            statements,
        }
    }
}

/// Prints figures as they come.
pub struct Report {
    json: bool,
    explain: bool,
    rows: Vec<Figures>,
}

impl Report {
    /// An empty report.
    pub fn new(json: bool, explain: bool) -> Self {
        Self { json, explain, rows: Vec::new() }
    }

    /// Adds figures: prints the JSON line at once, so that nothing is lost when a later workload fails.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn add(&mut self, figures: Figures) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string(&figures)?);
        }
        if self.explain {
            eprintln!("{} at {}: statements per run", figures.workload, figures.concurrency);
            for (text, calls) in figures.statements.iter().filter(|(_, calls)| *calls > 0.0) {
                let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(140).collect();
                eprintln!("{calls:10.3}  {line}");
            }
            if let Some(Details::Backlog(backlog)) = &figures.details {
                eprintln!("how a page of the full backlog is read:\n{}", backlog.plan.join("\n"));
            }
        }
        self.rows.push(figures);
        Ok(())
    }

    /// Prints the table.
    pub fn finish(&self) {
        if !self.json {
            println!("{}", table(&self.rows));
            for row in &self.rows {
                if let Some(details) = row.details.as_ref().and_then(|details| serde_json::to_value(details).ok()) {
                    println!("\n{}", row.workload);
                    details_tables(&details).iter().for_each(|table| println!("{table}"));
                }
            }
        }
    }
}

/// One line a value, and a table of its own for each list, with a column for each of its elements.
fn details_tables(details: &Value) -> Vec<Table> {
    let mut values = plain_table();
    let mut lists = Vec::new();
    for (name, value) in leaves(details) {
        match value {
            Value::Array(rows) => {
                let columns: Vec<BTreeMap<String, Value>> = rows.iter().map(|row| leaves(row).into_iter().collect()).collect();
                let mut list = plain_table();
                list.set_header([name].into_iter().chain((1..=columns.len()).map(|number| number.to_string())));
                for key in columns.iter().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>() {
                    let cells = columns.iter().map(|column| column.get(key).map(Value::to_string).unwrap_or_default());
                    list.add_row([key.clone()].into_iter().chain(cells));
                }
                lists.push(list);
            }
            value => _ = values.add_row([name, value.to_string()]),
        }
    }
    [values].into_iter().chain(lists).collect()
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// The values within an object, by their path; an empty object is left out.
fn leaves(value: &Value) -> Vec<(String, Value)> {
    let Value::Object(fields) = value else { return vec![(String::new(), value.clone())] };
    let within = |name: &String, value: &Value| {
        let path = |(rest, leaf): (String, Value)| (if rest.is_empty() { name.clone() } else { format!("{name}.{rest}") }, leaf);
        leaves(value).into_iter().map(path).collect::<Vec<_>>()
    };
    fields.iter().flat_map(|(name, value)| within(name, value)).collect()
}

fn table(rows: &[Figures]) -> Table {
    let mut roles: Vec<&str> = Vec::new();
    for name in ["engine", "frontend", "history", "matching", "timer", "config", "postgres", "redis", "worker", "drain", "client"] {
        if rows.iter().any(|row| row.cpu_s_per_1000_runs.contains_key(name)) {
            roles.push(name);
        }
    }
    let mut table = plain_table();
    let fixed = ["", "clients", "runs/s", "p50 ms", "p99 ms", "commits", "statements", "WAL B", "late p50", "late p99"];
    table.set_header(fixed.iter().map(|name| (*name).to_owned()).chain(roles.iter().map(|role| format!("{role} s/1000"))));
    let show = |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
    for row in rows {
        let late = row.timer_late_ms;
        let mut cells = vec![row.workload.to_owned(), row.concurrency.to_string(), show(row.runs_per_s, 1), show(row.p50_ms, 1), show(row.p99_ms, 1)];
        cells.extend([show(row.commits_per_run, 2), show(row.statements_per_run, 2), show(row.wal_bytes_per_run, 0)]);
        cells.extend([show(late.map(|late| late.p50), 1), show(late.map(|late| late.p99), 1)]);
        cells.extend(roles.iter().map(|role| show(row.cpu_s_per_1000_runs.get(role).copied(), 2)));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_persistence::measure::Spent;

    #[test]
    fn percentiles_are_values_that_occurred() {
        assert_eq!(percentiles(Vec::new()), None);
        assert_eq!(percentiles(vec![7.0]), Some(Percentiles { p50: 7.0, p99: 7.0 }));
        assert_eq!(percentiles((1..=200).rev().map(f64::from).collect()), Some(Percentiles { p50: 100.0, p99: 198.0 }));
    }

    #[test]
    fn the_idle_background_is_taken_off_and_nothing_gets_negative() {
        let spent = Spent { commits: 50, wal_bytes: 10_000, statements: [("a".to_owned(), 30), ("b".to_owned(), 4)].into() };
        let usage = Usage { seconds: 2.0, cpu_s: [("client", 0.5)].into(), spent: Some(spent) };
        let idle = Rates { commits: 5.0, wal_bytes: 9_000.0, statements: [("b".to_owned(), 2.0)].into() };
        let figures = Figures::of("A1", 1, 10, vec![1.0; 10], &usage, &idle);
        assert_eq!((figures.commits_per_run, figures.statements_per_run, figures.wal_bytes_per_run), (Some(4.0), Some(3.0), Some(0.0)));
        assert_eq!((figures.runs_per_s, figures.cpu_s_per_1000_runs["client"]), (Some(5.0), 50.0));
        assert_eq!(figures.statements, [("a".to_owned(), 3.0), ("b".to_owned(), 0.0)]);
    }

    #[test]
    fn statements_are_shown_without_the_shard_number() {
        assert_eq!(of_any_shard("SELECT a FROM shard_12.run JOIN shard_3.due USING (shard_id)"), "SELECT a FROM shard_N.run JOIN shard_N.due USING (shard_id)");
    }

    #[test]
    fn details_are_shown_by_their_paths_and_lists_as_tables() {
        let details = serde_json::json!({ "runs": 3, "memory_mib": { "before": { "engine": 1.5 }, "none": {} }, "parts": [{ "a": 1 }, { "a": 2, "b": 7 }] });
        let tables: Vec<String> = details_tables(&details).iter().map(ToString::to_string).collect();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(tables.iter().map(|table| words(table)).collect::<Vec<_>>(), ["memory_mib.before.engine 1.5 runs 3", "parts 1 2 a 1 2 b 7"]);
    }

    #[test]
    fn a_json_line_has_the_documented_keys() {
        let figures = Figures::of("W3", 500, 1, vec![], &Usage { seconds: 1.0, ..Usage::default() }, &Rates::default());
        let value = serde_json::to_value(figures).unwrap();
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut documented = ["workload", "concurrency", "runs_per_s", "p50_ms", "p99_ms", "cpu_s_per_1000_runs", "commits_per_run"].to_vec();
        documented.extend(["statements_per_run", "wal_bytes_per_run", "timer_late_ms", "details"]);
        documented.sort_unstable();
        assert_eq!(keys, documented);
    }
}
