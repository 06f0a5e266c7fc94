//! The streams of workers.
//!
//! A session is one worker's stream. For each matching process that has queues of the session there is a [`link`]: a stream that takes the
//! session's credit there and brings tasks. Credit that a lost link had not used is granted again wherever the queue lives then. Announcements
//! of running attempts go to the owners of their shards ([`announce`]); what runs is remembered, for the next owner of a shard
//! ([`running`]); sessions are made known to the config service ([`sessions`]). What a worker that went away had not been sent goes back
//! ([`undelivered`]).

mod announce;
mod credit;
mod link;
mod links;
mod open;
mod running;
mod sessions;
mod undelivered;

pub(crate) use open::open_session;
pub(crate) use sessions::Sessions;
pub(crate) use undelivered::Outgoing;
