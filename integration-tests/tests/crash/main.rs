//! Crash cases: a process is killed or frozen at a named point, or at any moment, under load; then results, side effects and every record log
//! must be as if nothing had happened, but for time.
//!
//! `HARVEST_SOAK_RUNS`, `HARVEST_SOAK_KILLS` and `HARVEST_SOAK_SEED` make `random::processes_die_and_freeze_at_random` longer, or repeat a run
//! of it; `HARVEST_OUTAGE_SECS` makes the `outages` longer.

mod bus;
mod clocks;
mod conflicts;
mod deploys;
mod drains;
mod frozen;
mod lines;
mod outages;
mod points;
mod random;
mod sleeper;
mod strike;
mod workers;
