# shellcheck shell=bash
# ./x bench: a release build on a Postgres and a Redis of its own; the data of an earlier benchmark is removed.

bench_cleanup() {
  trap - EXIT INT TERM
  [ -z "${BENCH_PID:-}" ] || stop_bench
  pg_stop bench || warn "the benchmark's Postgres could not be stopped"
  redis_stop bench || warn "the benchmark's Redis could not be stopped"
  drop_lock bench
}

# The load generator ends the processes that it has started.
stop_bench() {
  kill -TERM "$BENCH_PID" 2>/dev/null || return 0
  wait "$BENCH_PID" 2>/dev/null || true
}

bench_profile() { # the folder of the build: HARVEST_BENCH_PROFILE=debug saves the release build; its times and CPU mean nothing
  case ${HARVEST_BENCH_PROFILE:-release} in
    release)
      say "building with optimisations (the first time takes about ten minutes; then less)" >&2
      cargo build --workspace --exclude harvest-integration-tests --bins --release --quiet || die "the build failed"
      ;;
    debug)
      warn "a debug build: counts are right, times and CPU are not"
      cargo build --workspace --bins --quiet || die "the build failed"
      ;;
    *) die "HARVEST_BENCH_PROFILE is release or debug" ;;
  esac
}

bench_command() {
  local result=0 arg
  need_rust
  for arg in "$@"; do
    case $arg in
      -h | --help)
        [ -x "$TARGET/${HARVEST_BENCH_PROFILE:-release}/harvest" ] || bench_profile
        exec "$TARGET/${HARVEST_BENCH_PROFILE:-release}/harvest" bench --help
        ;;
    esac
  done
  need_postgres
  need_redis
  bench_profile
  # Before anything of an earlier benchmark is removed.
  HARVEST_BENCH_POSTGRES_URL=- HARVEST_BENCH_REDIS_URL=- "$TARGET/${HARVEST_BENCH_PROFILE:-release}/harvest" bench --check "$@" || exit
  take_lock bench
  trap bench_cleanup EXIT
  trap 'exit 130' INT TERM
  # Figures of a server with old data are not comparable.
  pg_remove bench
  pg_start bench
  redis_start bench
  HARVEST_BENCH_POSTGRES_URL=$(pg_url bench) \
    HARVEST_BENCH_REDIS_URL=$(redis_url bench) \
    HARVEST_BENCH_REDIS_PID=$(pid_of "$STATE/redis-bench.pid") \
    "$TARGET/${HARVEST_BENCH_PROFILE:-release}/harvest" bench --folder "$STATE/bench" "$@" &
  BENCH_PID=$!
  wait "$BENCH_PID" || result=$?
  BENCH_PID=
  bench_cleanup
  return "$result"
}
