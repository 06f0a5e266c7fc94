//! Conversions between the protocol and the core's vocabulary, both ways.
//!
//! The only crate that knows both sides. Whatever comes in is checked here: a value that leaves this crate is well-formed, and a refusal is a
//! [`WireError`] that names the field and what is allowed. Start at [`start`] for what clients send, [`event`] and [`command`] for what
//! workers exchange, [`records`], [`message`] and [`token`] for what is stored or travels between processes,
//! [`json`] for what people read.
//! May depend on proto, core and ids; no I/O.

pub mod activity_options;
pub mod command;
pub mod error;
pub mod event;
pub mod failure;
pub mod field;
pub mod json;
pub mod message;
pub mod pause;
pub mod payload;
pub mod records;
pub mod retry;
pub mod start;
pub mod token;
pub mod worker;

#[cfg(test)]
mod arbitrary;

pub use error::WireError;
