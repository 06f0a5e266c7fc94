//! What an SQLite error means for the caller.

use crate::error::{CommitError, StoreError};
use rusqlite::ErrorCode;

/// An error type that can say that an outcome was lost.
pub(super) trait Lost {
    fn lost(why: String) -> Self;
}

impl Lost for StoreError {
    fn lost(why: String) -> Self {
        Self::Unavailable(why)
    }
}

impl Lost for CommitError {
    /// The transaction's commit failed: whether it is on the disk is not known.
    fn lost(why: String) -> Self {
        Self::Unknown(why)
    }
}

enum Class {
    Value,
    Weather,
    Damage,
    Other,
}

fn class(error: &rusqlite::Error) -> Class {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch => Class::Value,
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::OperationInterrupted
            | ErrorCode::CannotOpen
            | ErrorCode::FileLockingProtocolFailed => Class::Weather,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Class::Damage,
            _ => Class::Other,
        },
        rusqlite::Error::ToSqlConversionFailure(_) | rusqlite::Error::IntegralValueOutOfRange(..) => Class::Value,
        rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::Utf8Error(..) => Class::Damage,
        _ => Class::Other,
    }
}

/// The error of a read, or of a write of the control tables.
pub(super) fn store_error(error: &rusqlite::Error) -> StoreError {
    match class(error) {
        Class::Weather => StoreError::Unavailable(error.to_string()),
        Class::Damage => StoreError::Corrupt(error.to_string()),
        Class::Value | Class::Other => StoreError::Refused(error.to_string()),
    }
}

/// The error of a statement of a batch, before its transaction commits: nothing of it stays.
pub(super) fn commit_error(error: &rusqlite::Error) -> CommitError {
    match class(error) {
        Class::Weather => CommitError::Unavailable(error.to_string()),
        Class::Value | Class::Damage | Class::Other => CommitError::Poisoned(error.to_string()),
    }
}
