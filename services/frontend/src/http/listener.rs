//! HTTP on a network other than TCP.

use harvest_rpc::network::{Duplex, Listener};
use std::future::poll_fn;
use std::io;

/// A listener as the HTTP server takes it.
pub(crate) struct OtherListener(pub(crate) Box<dyn Listener>);

impl axum::serve::Listener for OtherListener {
    type Io = Box<dyn Duplex>;
    type Addr = ();

    async fn accept(&mut self) -> (Self::Io, ()) {
        loop {
            match poll_fn(|context| self.0.poll_accept(context)).await {
                Ok(connection) => return (connection, ()),
                Err(error) => tracing::debug!(%error, "an HTTP connection could not be taken"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        self.0.local_addr().map(drop)
    }
}
