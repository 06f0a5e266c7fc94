//! Ports for processes that must come back at the same address after a restart.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

/// Below the range that the kernel gives to outgoing connections, so that none of those takes a port of a process that is down.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A free loopback port that this test process has not given out before. Test processes begin at different places of the range.
///
/// # Errors
/// When every port of the range is taken.
pub fn free() -> anyhow::Result<u16> {
    let mut given = GIVEN.lock().expect("no code panics while it holds this lock");
    let begin = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(COUNT)).expect("less than COUNT");
    for step in 0..COUNT {
        let port = FIRST + (begin.wrapping_add(step)) % COUNT;
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return Ok(port);
        }
    }
    anyhow::bail!("no free loopback port from {FIRST} on")
}
