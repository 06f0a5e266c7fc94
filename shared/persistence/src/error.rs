//! What can go wrong with a store, by what the caller may do about it.

/// A read, or a write of the control tables, failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or is overloaded: try again (SQLSTATE classes 08, 40, 53, 55, 57, 25006).
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// What is stored cannot be read: a bug or damage.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
    /// The statement is wrong: a bug, a missing migration or a missing grant.
    #[error("store refused: {0}")]
    Refused(String),
}

/// A batch did not commit, or nobody knows whether it did.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The fence did not match: another owner has the shard. Nothing was written.
    #[error("the shard is lost")]
    ShardLost,
    /// Some value of the batch is not acceptable (SQLSTATE classes 22, 23, 54). Nothing was written.
    #[error("a decision of the batch is poisoned: {0}")]
    Poisoned(String),
    /// Certainly nothing was written; try again.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The connection was lost while the statement was in flight: `ShardStore::settle` finds out, and nothing else may be done before.
    #[error("the outcome of the commit is unknown: {0}")]
    Unknown(String),
}
