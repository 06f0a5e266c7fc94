# shellcheck shell=bash
# ./x test: one private Postgres and one private Redis for all tests, removed afterwards, also after a failure or Ctrl-C.
# ./x soak: the tests whose numbers can grow, with larger ones. ./x ci: what CI runs.

test_cleanup() {
  trap - EXIT INT TERM
  pg_remove test || warn "the test Postgres could not be removed"
  redis_remove test || warn "the test Redis could not be removed"
  drop_lock test
}

test_command() {
  need_rust
  need_postgres
  need_redis
  take_lock test
  trap test_cleanup EXIT
  trap 'exit 130' INT TERM
  # A run that was killed may have left its servers; the tests start from nothing.
  pg_remove test
  redis_remove test
  pg_start test
  redis_start test
  HARVEST_TEST_POSTGRES_URL=$(pg_url test)
  HARVEST_TEST_REDIS_URL=$(redis_url test)
  # The crash tests start the services as processes of their own.
  HARVEST_TEST_BIN=$BIN
  export HARVEST_TEST_POSTGRES_URL HARVEST_TEST_REDIS_URL HARVEST_TEST_BIN
  build_workspace
  if cargo nextest --version >/dev/null 2>&1; then
    # Many tests panic on purpose: their backtraces would hide what failed, and cost seconds each. RUST_BACKTRACE=full shows them.
    [[ ${RUST_BACKTRACE:-1} == full ]] || export RUST_BACKTRACE=0
    # What failed is said again at the end, where a reader of a long log looks first.
    cargo nextest run --workspace --no-fail-fast --failure-output immediate-final "$@"
  else
    say "cargo-nextest is not installed (cargo install cargo-nextest --locked); using cargo test"
    cargo test --workspace --no-fail-fast "$@"
  fi
  test_cleanup
}

# The same tests with larger numbers; each variable that is set already is kept.
soak_command() {
  export HARVEST_SOAK_RUNS=${HARVEST_SOAK_RUNS:-1000} HARVEST_SOAK_KILLS=${HARVEST_SOAK_KILLS:-50}
  export HARVEST_OUTAGE_SECS=${HARVEST_OUTAGE_SECS:-30} HARVEST_SEEDS=${HARVEST_SEEDS:-1000} HARVEST_SIM_SEEDS=${HARVEST_SIM_SEEDS:-1000}
  say "soak: $HARVEST_SOAK_RUNS purchases under $HARVEST_SOAK_KILLS kills and freezes, outages of $HARVEST_OUTAGE_SECS s, $HARVEST_SEEDS and $HARVEST_SIM_SEEDS seeds"
  cargo nextest --version >/dev/null 2>&1 || die "soak needs cargo-nextest: cargo install cargo-nextest --locked"
  test_command --no-capture -E '(test(processes_die_and_freeze_at_random) | test(outages) | test(world)) - binary(ring_c)' "$@"
  say "soak: the simulated fleet"
  sim_command --optimised --seeds "$HARVEST_SIM_SEEDS"
}

ci_step() { # NAME COMMAND..: says how long each part took, for the log's reader
  local name=$1 began
  began=$(now)
  shift
  say "== $name"
  "$@" || die "$name failed after $(($(now) - began)) s"
  say "== $name: $(($(now) - began)) s"
}

ci_command() {
  ci_step lint "$ROOT/x" lint
  ci_step test "$ROOT/x" test
  ci_step 'demo (embedded)' "$ROOT/x" demo
  ci_step 'demo (fleet)' "$ROOT/x" demo --fleet
  say "ci passed"
}
