//! What a Postgres error means for the caller, by SQLSTATE class.

use crate::error::{CommitError, StoreError};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// What kind of failure an SQLSTATE is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// 22, 23, 54: a value is not acceptable.
    Value,
    /// 08, 40, 53, 55, 57, 25006: passes by itself.
    Weather,
    /// Anything else: a bug, a missing migration or grant.
    Other,
}

fn class(code: &str) -> Class {
    match code.get(..2) {
        Some("22" | "23" | "54") => Class::Value,
        Some("08" | "40" | "53" | "55" | "57") => Class::Weather,
        _ if code == "25006" => Class::Weather,
        _ => Class::Other,
    }
}

fn database_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error().and_then(|error| error.try_downcast_ref())
}

fn text(error: &PgDatabaseError) -> String {
    let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    format!("{} {}{detail}", error.code(), error.message())
}

/// Whether the session is in order after this error: the server answered it and stays.
pub(super) fn session_survives(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::RowNotFound | sqlx::Error::ColumnNotFound(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Encode(_) => true,
        other => database_error(other).is_some_and(|error| error.severity() == PgSeverity::Error),
    }
}

/// Whether a lock was not to be had within `lock_timeout`.
pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|error| error.code() == "55P03")
}

/// The error of a read, or of a write of the control tables.
pub(super) fn store_error(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::ColumnNotFound(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnIndexOutOfBounds { .. } | sqlx::Error::Decode(_) => {
            StoreError::Corrupt(error.to_string())
        }
        sqlx::Error::Encode(_) | sqlx::Error::Configuration(_) | sqlx::Error::RowNotFound => StoreError::Refused(error.to_string()),
        other => match database_error(other) {
            Some(error) if class(error.code()) == Class::Weather => StoreError::Unavailable(text(error)),
            Some(error) => StoreError::Refused(text(error)),
            None => StoreError::Unavailable(other.to_string()),
        },
    }
}

/// The error of the batch statement once it was sent.
///
/// An answer of severity ERROR says that the statement was rolled back. Anything that ends the session says nothing: the commit may
/// have happened before.
pub(super) fn commit_error(error: &sqlx::Error) -> CommitError {
    if let sqlx::Error::Encode(_) = error {
        return CommitError::Poisoned(error.to_string());
    }
    match database_error(error) {
        Some(error) if error.severity() != PgSeverity::Error => CommitError::Unknown(text(error)),
        Some(error) => match class(error.code()) {
            Class::Value | Class::Other => CommitError::Poisoned(text(error)),
            Class::Weather if error.code().starts_with("08") => CommitError::Unknown(text(error)),
            Class::Weather => CommitError::Unavailable(text(error)),
        },
        None => CommitError::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlstate_says_whether_a_value_the_weather_or_a_bug_is_to_blame() {
        for (code, expected) in [
            ("22012", Class::Value),
            ("23505", Class::Value),
            ("54000", Class::Value),
            ("08006", Class::Weather),
            ("40P01", Class::Weather),
            ("53300", Class::Weather),
            ("55P03", Class::Weather),
            ("57P01", Class::Weather),
            ("25006", Class::Weather),
            ("25001", Class::Other),
            ("42P01", Class::Other),
            ("", Class::Other),
        ] {
            assert_eq!(class(code), expected, "{code}");
        }
    }

    #[test]
    fn a_lost_connection_leaves_the_outcome_of_a_commit_unknown() {
        let lost = || sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert!(matches!(commit_error(&lost()), CommitError::Unknown(_)));
        assert!(matches!(store_error(&lost()), StoreError::Unavailable(_)));
        assert!(!session_survives(&lost()));
    }
}
