//! Ring C: the real services on a simulated network (`tests/ring_c`). Here is only what makes a process of it repeat itself.
//!
//! Time, the network, the store, ids and faults of the simulation come from its seed. What is left is the randomness that libraries take
//! from the machine: the order of hash maps, and which ready branch of a `select!` tokio looks at first. All of it comes from `getrandom`
//! of the C library, which the standard library lets a program replace; here it is replaced, so that one seed gives one run of a process.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static REPEATS: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU64 = AtomicU64::new(0);

/// From now on all randomness of this process comes from `seed`. Threads that have used a hash map before keep the order that they have.
pub fn repeat_from(seed: u64) {
    STATE.store(seed, Ordering::SeqCst);
    REPEATS.store(true, Ordering::SeqCst);
}

fn next() -> u64 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15; // SplitMix64
    let mut z = STATE.fetch_add(GAMMA, Ordering::SeqCst).wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    if !REPEATS.load(Ordering::SeqCst) {
        return std::fs::File::open("/dev/urandom")?.read_exact(bytes);
    }
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&next().to_le_bytes()[..part.len()]);
    }
    Ok(())
}

/// Stands for `getrandom(2)` of the C library in this program.
///
/// # Safety
/// As that one's: `buffer` is writable for `length` bytes.
#[allow(unsafe_code)] // the only way to stand for a function of C
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: as the caller promises.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    match fill(bytes) {
        Ok(()) => isize::try_from(length).unwrap_or(isize::MAX),
        Err(_) => -1,
    }
}
