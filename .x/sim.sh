# shellcheck shell=bash
# ./x sim: the real services on a simulated network, with faults from a seed. Needs neither Postgres nor Redis.

sim_usage() {
  cat <<'HELP'
usage: ./x sim [OPTIONS]

  --seed N      replay one seed and print its trace
  --seeds N     so many seeds (default: as in ./x test)
  --minutes M   seeds one after the other for so long
  --from N      the first seed of --seeds and --minutes (default 0)
  --jobs N      how many at once (default: one for each core)

A seed that fails ends it, with the line that replays the seed.
HELP
}

sim_command() {
  local variable
  while [ $# -gt 0 ]; do
    case $1 in
      --seed) variable=HARVEST_SIM_SEED ;;
      --seeds) variable=HARVEST_SIM_SEEDS ;;
      --minutes) variable=HARVEST_SIM_MINUTES ;;
      --from) variable=HARVEST_SIM_FROM ;;
      --jobs) variable=HARVEST_SIM_JOBS ;;
      -h | --help)
        sim_usage
        return
        ;;
      *)
        sim_usage >&2
        die "unknown option of sim: $1"
        ;;
    esac
    case ${2:-} in
      '' | *[!0-9]*) die "$1 needs a number" ;;
    esac
    export "$variable=$2"
    shift 2
  done
  need_rust
  say "building the simulation"
  cargo test --workspace --test ring_c --no-run --quiet || die "the build failed"
  cargo test --workspace --test ring_c --quiet -- --exact --nocapture "$SIM_TEST"
}

SIM_TEST=in_every_seed_all_runs_close_and_what_clients_and_the_world_outside_saw_is_true
