//! The functions of the C library that this program has its own of.

use crate::{ELAPSED, RANDOM};
use std::cell::Cell;
use std::io::Read as _;
use std::time::Duration;

/// What clocks show at the beginning of a simulation: long enough for differences to the past.
const BEGIN: Duration = Duration::from_secs(100_000);

/// The next number of this thread, if it repeats itself.
fn next() -> Option<u64> {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15; // SplitMix64
    // A thread that is ending has no such variable any more.
    let state = RANDOM.try_with(Cell::get).ok().flatten()?.wrapping_add(GAMMA);
    RANDOM.set(Some(state));
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(z ^ (z >> 31))
}

fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    let Some(first) = next() else { return std::fs::File::open("/dev/urandom")?.read_exact(bytes) };
    let numbers = std::iter::once(first).chain(std::iter::from_fn(next));
    for (part, number) in bytes.chunks_mut(8).zip(numbers) {
        part.copy_from_slice(&number.to_le_bytes()[..part.len()]);
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

/// Stands for `clock_gettime(2)` of the C library in this program.
///
/// # Safety
/// As that one's: `time` is writable.
#[allow(unsafe_code)] // the only way to stand for a function of C
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let Some(elapsed) = ELAPSED.try_with(Cell::get).ok().flatten() else {
        // SAFETY: as the caller promises.
        let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return if result == 0 { 0 } else { -1 };
    };
    let shown = BEGIN + elapsed;
    let seconds = libc::time_t::try_from(shown.as_secs()).unwrap_or(libc::time_t::MAX);
    // SAFETY: as the caller promises.
    unsafe { time.write(libc::timespec { tv_sec: seconds, tv_nsec: shown.subsec_nanos().into() }) };
    0
}
