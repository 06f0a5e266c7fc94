//! docs/reference/events.md has every event with every field.
#![allow(clippy::unwrap_used)] // tests: also in their helpers

const PAGE: &str = include_str!("../../../docs/reference/events.md");
const PROTOCOL: &str = include_str!("../../../proto/proto/harvest/v1/history.proto");

/// The inside of a message of the protocol.
fn body<'a>(protocol: &'a str, message: &str) -> &'a str {
    let (_, rest) = protocol.split_once(&format!("\nmessage {message} {{")).unwrap();
    rest.split_once("\n}").unwrap().0
}

/// The lines `TYPE NAME = NUMBER;` as (type, name).
fn fields(body: &str) -> Vec<(&str, &str)> {
    let declarations = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    declarations.filter_map(|line| line.split_once(" = ")?.0.rsplit_once(' ')).collect()
}

#[test]
fn every_event_has_a_section_that_names_its_fields() {
    let (_, kinds) = PROTOCOL.split_once("oneof kind {").unwrap();
    let kinds = fields(kinds.split_once('}').unwrap().0);
    assert!(kinds.len() >= 26, "the events of the protocol were not found");
    for (event, _) in &kinds {
        let section = PAGE.split("\n### ").find(|section| section.starts_with(&format!("{event}\n")));
        let section = section.unwrap_or_else(|| panic!("events.md has no section {event}"));
        for (_, field) in fields(body(PROTOCOL, event)) {
            assert!(section.contains(&format!("| `{field}` |")), "events.md, {event}: no row for {field}");
        }
    }
    assert_eq!(PAGE.matches("\n### ").count(), kinds.len(), "events.md has a section of an event that does not exist");
}
