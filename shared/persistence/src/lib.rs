//! Where runs are kept: narrow store traits, two implementations ([`postgres`] and [`embedded`]), one conformance suite.
//!
//! May depend on `harvest-ids`, `harvest-workflow-core`, sqlx and rusqlite; the only crate that may use the last two.
//! Start at [`batch::Batch`], the one way in which anything about runs is written, and [`store`] for the traits.
//!
//! # How a shard is owned and written
//! 1. [`store::ShardStore::take_over`] raises the shard's epoch. From then on every older owner's commit answers
//!    [`error::CommitError::ShardLost`] and has written nothing.
//! 2. [`store::ShardStore::open_writer`] gives the one writer of that epoch. Its [`store::ShardWriter::commit`] is one statement, all or
//!    nothing: either the fence row (shard, epoch) matched and every row of the batch was written, or nothing was.
//! 3. [`error::CommitError::Unknown`] means that nobody can tell: [`store::ShardStore::settle`] raises the epoch once more, which waits for
//!    the old statement, and the fence it returns says whether the batch landed. The old writer stays broken; a new one is opened.
//! 4. [`error::CommitError::Poisoned`] means that some row is not acceptable (or that a row to change is not there, which is a bug of the
//!    engine): the batch is redone in parts. [`error::CommitError::Unavailable`] means that nothing was written and that it may be tried again.
//!
//! # Opening a store
//! Postgres 14 or newer with lz4: [`postgres::migrate()`] once per release, then [`postgres::PgStore::connect`]. Embedded:
//! [`embedded::EmbeddedStore::open`] or `in_memory`, then `migrate(shards)`. Both implement [`store::ShardStore`],
//! [`control::DirectoryStore`] and [`control::ConfigStore`] and are cheap to clone.
//!
//! # Testing
//! [`conformance`] holds what every store must do; [`provision`] gives tests a Postgres of their own, [`measure`] counts what they cost it.

pub mod batch;
pub mod conformance;
pub mod control;
pub mod embedded;
pub mod error;
pub mod measure;
pub mod postgres;
pub mod provision;
mod slots;
pub mod store;
