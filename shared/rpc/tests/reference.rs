//! docs/reference/errors.md says of every reason what the code says.

use harvest_rpc::Reason;

const PAGE: &str = include_str!("../../../docs/reference/errors.md");

/// `InvalidArgument` as `INVALID_ARGUMENT`.
fn words(code: tonic::Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

#[test]
fn every_reason_has_its_row_and_every_row_its_reason() {
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    for reason in Reason::ALL {
        let retry = if reason.retryable() { "yes" } else { "no" };
        let begin = format!("| `{}` | {} | {} | {retry} |", reason.as_str(), words(reason.code()), reason.http_status());
        assert!(rows.iter().any(|row| row.starts_with(&begin)), "errors.md has no row that begins with: {begin}");
    }
    assert_eq!(rows.len(), Reason::ALL.len(), "errors.md has a row of a reason that does not exist");
}
