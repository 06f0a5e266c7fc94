# shellcheck shell=bash
# ./x mutants: planted bugs. Each patch of integration-tests/mutants breaks a copy of the tree; some ring of tests has to fail.
#
# The copy is what would be committed now (`git add -A`, without touching the index), under .harvest. Files are written only where their
# content changes, so that cargo builds no more than a mutant needs; all mutants share one build folder.

MUTANTS=$ROOT/integration-tests/mutants

mutants_usage() {
  cat <<'HELP'
usage: ./x mutants [--seeds N] [NUMBER..]

  Applies each planted bug of integration-tests/mutants (or those with the numbers given) to a copy of the tree and runs the rings of tests,
  cheapest first, until one fails:
    crate   the tests of the crates that the patch touches
    engine  the tests of harvest-history: the engine, and the world (ring B)
    sim     the simulated fleet (ring C), seeds 0 to N-1 (default 4)
  The same rings must pass on the copy as it is. Fails when a bug is found by no ring, when a patch does not apply, or does not compile.

HELP
  mutants_list
}

# mutants_title FILE: what stands above the diff, from its first line.
mutants_title() { sed -n '1s/^# *//p' "$1"; }

mutants_list() {
  local file
  for file in "$MUTANTS"/[0-9][0-9]-*.patch; do
    printf '  %-34s %s\n' "$(basename "$file" .patch)" "$(mutants_title "$file")"
  done
}

# mutants_chosen NUMBER..: the files of these, of all without any.
mutants_chosen() {
  local number found
  if [ $# -eq 0 ]; then
    printf '%s\n' "$MUTANTS"/[0-9][0-9]-*.patch
    return
  fi
  for number in "$@"; do
    found=$(find "$MUTANTS" -name "$number-*.patch" 2>/dev/null)
    case $number in [0-9][0-9]) ;; *) found='' ;; esac
    if [ -z "$found" ]; then
      warn "there is no mutant $number; there are:"
      mutants_list >&2
      return 1
    fi
    printf '%s\n' "$found"
  done
}

# git with the copy as its work tree. New objects go to .harvest, not to the repository.
mutants_git() {
  (
    cd "$MUTANTS_TREE" || exit
    GIT_DIR=$MUTANTS_GIT GIT_WORK_TREE=$MUTANTS_TREE GIT_INDEX_FILE=$MUTANTS_HOME/index.copy GIT_OBJECT_DIRECTORY=$MUTANTS_HOME/objects \
      GIT_ALTERNATE_OBJECT_DIRECTORIES=$MUTANTS_GIT/objects git "$@"
  )
}

# Makes the copy equal to the snapshot, whatever a mutant or an interrupted run has left in it.
mutants_reset() {
  if ! mutants_git read-tree --reset -u "$MUTANTS_SNAPSHOT" || ! mutants_git clean -fdxq; then die "the copy of the tree cannot be made: $MUTANTS_TREE"; fi
}

# The snapshot: the tree as it would be committed now. Later changes of the tree do not matter.
mutants_copy() {
  MUTANTS_GIT=$(git -C "$ROOT" rev-parse --path-format=absolute --git-common-dir) || die "mutants needs a git checkout"
  mkdir -p "$MUTANTS_TREE" "$MUTANTS_HOME/objects"
  MUTANTS_SNAPSHOT=$(
    export GIT_INDEX_FILE=$MUTANTS_HOME/index.tree GIT_OBJECT_DIRECTORY=$MUTANTS_HOME/objects GIT_ALTERNATE_OBJECT_DIRECTORIES=$MUTANTS_GIT/objects
    git -C "$ROOT" add -A >/dev/null && git -C "$ROOT" write-tree
  ) || die "the tree cannot be copied"
  mutants_reset
}

# The packages that a patch touches, in order.
mutants_packages() { # FILE
  local path folder
  sed -n 's|^+++ b/||p' "$1" | while IFS= read -r path; do
    folder=$(dirname "$path")
    until [ -f "$ROOT/$folder/Cargo.toml" ]; do folder=$(dirname "$folder"); done
    sed -n 's/^name = "\(.*\)"$/\1/p' "$ROOT/$folder/Cargo.toml" | head -1
  done | sort -u
}

# The rings of a patch, one a line: NAME ARGUMENTS of the test runner.
mutants_rings() { # FILE
  local packages package arguments=''
  packages=$(mutants_packages "$1")
  for package in $packages; do arguments="$arguments -p $package"; done
  if [ "$packages" != harvest-history ]; then echo "crate$arguments"; fi
  echo "engine -p harvest-history"
  echo "sim -p harvest-simulation --test ring_c -E test(=$SIM_TEST)"
}

# mutants_ring LOG ARGUMENTS..: runs a ring in the copy. 0: it passes. 1: a test fails, which is named in MUTANTS_FOUND. 2: it does not compile.
mutants_ring() {
  local log=$1 status=0
  shift
  (
    cd "$MUTANTS_TREE" || exit
    CARGO_TARGET_DIR=$TARGET/mutants cargo nextest run --config-file "$MUTANTS/nextest.toml" --color never --cargo-quiet \
      --status-level fail --final-status-level none --failure-output immediate --no-input-handler "$@"
  ) >>"$log" 2>&1 || status=$?
  case $status in
    0) return 0 ;;
    100)
      # A line of the runner, `FAIL [ 0.1s] (1/2) package test`, and of the simulation the seed.
      MUTANTS_FOUND=$(sed -nE 's/^ *(FAIL|TIMEOUT|ABORT|LEAK-FAIL|SIG[A-Z]*) \[[^]]*\] *(\([^)]*\) *)?(.*)$/\3 (\1)/p' "$log" | head -1)
      MUTANTS_FOUND="$MUTANTS_FOUND$(sed -n 's/^ *seed \([0-9]*\) fails$/, seed \1/p' "$log" | head -1)"
      return 1
      ;;
    101) return 2 ;;
    130 | 143) exit "$status" ;;
    *)
      tail_log "$log"
      die "the test runner ended with $status; its log is $log"
      ;;
  esac
}

# The rings of all chosen mutants pass on the unpatched copy.
mutants_baseline() { # FILE..
  local file name arguments began status log=$MUTANTS_HOME/log/unpatched.log
  : >"$log"
  for file in "$@"; do mutants_rings "$file"; done | sort -u >"$MUTANTS_HOME/rings"
  while read -r name arguments <&3; do
    began=$(now)
    status=0
    # shellcheck disable=SC2086 # arguments of the test runner, one word each
    mutants_ring "$log" $arguments || status=$?
    case $status in
      0) mutants_row unpatched "$name passes: $arguments" "$(($(now) - began))" ;;
      *)
        tail_log "$log" 40
        die "the unpatched copy fails ($arguments); its log is $log"
        ;;
    esac
  done 3<"$MUTANTS_HOME/rings"
}

mutants_row() { printf '%-34s %5s s  %s\n' "$1" "$3" "$2"; }

# mutants_try FILE: one mutant. False when it is not found.
mutants_try() {
  local file=$1 name arguments began status mutant outcome='NOT FOUND by any ring' found=1 log
  mutant=$(basename "$file" .patch)
  log=$MUTANTS_HOME/log/$mutant.log
  : >"$log"
  began=$(now)
  if ! mutants_git apply "$MUTANTS_TREE/integration-tests/mutants/$mutant.patch" >>"$log" 2>&1; then
    mutants_row "$mutant" "DOES NOT APPLY: $log" "$(($(now) - began))"
    return 1
  fi
  mutants_rings "$file" >"$MUTANTS_HOME/rings"
  while read -r name arguments <&3; do
    status=0
    # shellcheck disable=SC2086 # arguments of the test runner, one word each
    mutants_ring "$log" $arguments || status=$?
    case $status in
      0) continue ;;
      1)
        outcome="$name: $MUTANTS_FOUND"
        found=0
        ;;
      *) outcome="DOES NOT COMPILE: $log" ;;
    esac
    break
  done 3<"$MUTANTS_HOME/rings"
  mutants_reset
  mutants_row "$mutant" "$outcome" "$(($(now) - began))"
  return $found
}

mutants_cleanup() {
  trap - EXIT INT TERM
  pg_remove mutants || warn "the Postgres of the mutants could not be removed"
  redis_remove mutants || warn "the Redis of the mutants could not be removed"
  drop_lock mutants
}

mutants_command() {
  local files file failed='' began seeds=4 numbers=''
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help)
        mutants_usage
        return
        ;;
      --seeds)
        case ${2:-} in '' | *[!0-9]*) die "--seeds needs a number" ;; esac
        seeds=$2
        shift 2
        ;;
      -*)
        mutants_usage >&2
        die "unknown option of mutants: $1"
        ;;
      *)
        numbers="$numbers $1"
        shift
        ;;
    esac
  done
  # shellcheck disable=SC2086 # one word a number
  files=$(mutants_chosen $numbers) || exit 2
  MUTANTS_HOME=$STATE/mutants
  MUTANTS_TREE=$MUTANTS_HOME/tree
  need_rust
  cargo nextest --version >/dev/null 2>&1 || die "mutants needs cargo-nextest: cargo install cargo-nextest --locked"
  need_postgres
  need_redis
  take_lock mutants
  trap mutants_cleanup EXIT
  trap 'exit 130' INT TERM
  began=$(now)
  mkdir -p "$MUTANTS_HOME/log"
  pg_remove mutants
  redis_remove mutants
  pg_start mutants
  redis_start mutants
  HARVEST_TEST_POSTGRES_URL=$(pg_url mutants)
  HARVEST_TEST_REDIS_URL=$(redis_url mutants)
  HARVEST_SIM_SEEDS=$seeds
  export HARVEST_TEST_POSTGRES_URL HARVEST_TEST_REDIS_URL HARVEST_SIM_SEEDS
  mutants_copy
  # shellcheck disable=SC2086 # names of patches have no spaces
  mutants_baseline $files
  for file in $files; do
    mutants_try "$file" || failed="$failed $(basename "$file" .patch)"
  done
  mutants_cleanup
  [ -z "$failed" ] || die "not found, or no mutants any more:$failed"
  say "$(printf '%s\n' "$files" | wc -l | tr -d ' ') mutants found in $(($(now) - began)) s"
}
