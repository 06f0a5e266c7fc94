//! What an SQLite error means for the caller.

use crate::error::{CommitError, StoreError};
use rusqlite::ErrorCode;

/// Why a transaction is not known to be on the disk.
#[derive(Debug, Clone)]
pub(super) enum Lost {
    /// Certainly nothing was written.
    Undone(String),
    /// Whether it is on the disk is not known.
    Unknown(String),
}

impl Lost {
    /// What a failed `COMMIT` means. A full disk could not take the frame that would make the transaction count; of a disk that fails
    /// otherwise nobody knows what it took.
    pub(super) fn at_commit(error: &rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => Self::Undone(error.to_string()),
            _ => Self::Unknown(error.to_string()),
        }
    }
}

impl From<Lost> for StoreError {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Undone(why) | Lost::Unknown(why) => Self::Unavailable(why),
        }
    }
}

impl From<Lost> for CommitError {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Undone(why) => Self::Unavailable(why),
            Lost::Unknown(why) => Self::Unknown(why),
        }
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
            | ErrorCode::ReadOnly
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
