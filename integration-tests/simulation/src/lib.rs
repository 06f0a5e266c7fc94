//! Ring C: the real services on a simulated network (`tests/ring_c`). Here is only what makes a thread of it repeat itself.
//!
//! Time, the network, the store, ids and faults of the simulation come from its seed. What is left is what libraries take from the machine
//! by themselves: the randomness of hash maps and of tokio's choice among ready branches of a `select!`, and the clock by which the HTTP
//! library forgets streams that it has reset. All of it comes from two functions of the C library, and a program's own functions of these
//! names take their place: here they are, so that one seed gives one run. On systems other than
//! Linux nothing is replaced: simulations work and do not repeat exactly.

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
    static ELAPSED: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// From now on all randomness of this thread comes from `seed`, and its clocks stand still but for [`set_elapsed`]. A thread that has made
/// a hash map before keeps the order that its maps have: call it first of all.
pub fn repeat_from(seed: u64) {
    RANDOM.set(Some(seed));
    set_elapsed(Duration::ZERO);
}

/// Sets the clocks of this thread, as time since [`repeat_from`].
pub fn set_elapsed(elapsed: Duration) {
    ELAPSED.set(Some(elapsed));
}

#[cfg(target_os = "linux")]
mod functions;
