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
  --optimised   build with optimisation first: takes minutes, and pays from about a hundred seeds

A seed that fails ends it, with the line that replays the seed.
HELP
}

sim_command() {
  local variable profile=dev packages=--workspace
  while [ $# -gt 0 ]; do
    case $1 in
      --seed) variable=HARVEST_SIM_SEED ;;
      --seeds) variable=HARVEST_SIM_SEEDS ;;
      --minutes) variable=HARVEST_SIM_MINUTES ;;
      --from) variable=HARVEST_SIM_FROM ;;
      --jobs) variable=HARVEST_SIM_JOBS ;;
      --optimised)
        # Not the whole workspace: this profile has a build folder of its own.
        profile=sim packages='--package harvest-simulation'
        shift
        continue
        ;;
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
      '' | *[!0-9]*) die "$1 needs a whole number" ;;
      0) [ "$1" = --seed ] || [ "$1" = --from ] || die "$1 needs at least 1" ;;
    esac
    export "$variable=$2"
    shift 2
  done
  need_rust
  say "building the simulation"
  # shellcheck disable=SC2086 # one option and its value
  cargo test $packages --profile "$profile" --test ring_c --no-run --quiet || die "the build failed"
  # shellcheck disable=SC2086
  cargo test $packages --profile "$profile" --test ring_c --quiet -- --exact --nocapture "$SIM_TEST"
}

SIM_TEST=in_every_seed_all_runs_close_and_what_clients_and_the_world_outside_saw_is_true
