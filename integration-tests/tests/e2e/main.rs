//! End-to-end cases: the same ones on `harvest dev`, on five processes and on two of each service.
//!
//! `HARVEST_CASE=timers cargo test -p harvest-integration-tests --test e2e` runs only the cases whose name contains the word.

mod budgets;
mod cases;
mod histories;

harvest_integration_tests::on_every_topology!(cases::all);
