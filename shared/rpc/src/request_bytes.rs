//! Bytes of the requests that a process works on: bounded, whoever sends them and however they come.

use crate::error::Error;
use crate::reason::Reason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a call weighs besides its bytes.
pub const CALL_BYTES: u64 = 1_024;

/// The room that calls in flight share. Cheap to clone; all clones share it.
#[derive(Debug, Clone)]
pub struct RequestBytes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit: u64,
    name: &'static str,
    taken: AtomicU64,
}

impl RequestBytes {
    /// Room for `limit` bytes; `name` is what refusals call the bound.
    pub fn new(limit: u64, name: &'static str) -> Self {
        Self { inner: Arc::new(Inner { limit, name, taken: AtomicU64::new(0) }) }
    }

    /// Takes a call in that has, or may have, so many bytes.
    ///
    /// # Errors
    /// [`Reason::Overloaded`] with the name of the bound when there is no room.
    pub fn take(&self, bytes: u64) -> Result<TakenBytes, Error> {
        let mut taken = TakenBytes { of: self.clone(), bytes: 0 };
        taken.grow(bytes)?;
        Ok(taken)
    }

    /// Bytes that are taken now.
    pub fn taken(&self) -> u64 {
        self.inner.taken.load(Ordering::Relaxed)
    }
}

/// The part of one call; given back when it is dropped.
#[derive(Debug)]
pub struct TakenBytes {
    of: RequestBytes,
    bytes: u64,
}

impl TakenBytes {
    /// The call turns out to have more bytes.
    ///
    /// # Errors
    /// [`Reason::Overloaded`] with the name of the bound when there is no room; nothing more is taken then.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Error> {
        let Inner { limit, name, taken } = &*self.of.inner;
        let fits = |now: u64| now.checked_add(bytes).filter(|then| then <= limit);
        match taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(_) => Err(Error::new(Reason::Overloaded, format!("the calls in flight have too many bytes: {name} reached")).with("limit", name)),
        }
    }
}

impl Drop for TakenBytes {
    fn drop(&mut self) {
        self.of.inner.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_by_the_name_of_the_bound_and_room_comes_back() {
        let room = RequestBytes::new(100, "max_request_bytes");
        let mut first = room.take(60).unwrap();
        first.grow(20).unwrap();
        let refused = room.take(30).unwrap_err();
        assert_eq!((refused.reason, refused.metadata["limit"].as_str()), (Reason::Overloaded, "max_request_bytes"));
        assert!(first.grow(21).is_err());
        let second = room.take(20).unwrap();
        assert_eq!(room.taken(), 100);
        drop(first);
        assert_eq!(room.taken(), 20);
        drop(second);
        assert_eq!(room.taken(), 0);
    }
}
