//! The real frontend on loopback, between clients and a fake fleet.
#![allow(clippy::unwrap_used)] // tests: also in their helpers

mod grpc;
mod http;
mod reannounce;
mod session;
mod support;
