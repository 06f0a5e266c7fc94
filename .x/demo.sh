# shellcheck shell=bash
# ./x demo: the order example on an engine that is killed with SIGKILL while orders are in flight.

DEMO=$STATE/demo
# Orders started per second and the deadline of an approval decide how long the demo takes: about half a minute.
DEMO_APPROVAL_DEADLINE_S=${DEMO_APPROVAL_DEADLINE_S:-25}

demo_cleanup() {
  local name
  trap - EXIT INT TERM
  for name in order-demo worker-1 worker-2 engine bank; do stop_process "$DEMO/$name.pid" "${1:-TERM}" 40; done
}

demo_interrupted() {
  demo_cleanup KILL
  if [ "$DEMO_FLEET" = yes ]; then
    fleet_stop_demo
    drop_lock fleet
  fi
  drop_lock demo
}

# note TEXT: order-demo shows it above its progress bar.
demo_note() { printf '%s\n' "$*" >>"$DEMO/notes"; }

bank_calls() { # ACTION: how many the bank has recorded so far
  local count
  count=$(grep -c "\"action\":\"$1\"" "$DEMO/bank.jsonl" 2>/dev/null) || true
  echo "${count:-0}"
}
bank_has() { [ "$(bank_calls "$1")" -ge "$2" ]; }

# demo_run ADDRESS BREAK..: starts bank, workers and orders; when the first parcels are out, calls BREAK; returns what order-demo returned.
demo_run() {
  local address=$1 bank worker result=0
  shift
  bank=127.0.0.1:$(port_of demo-bank)
  start_process "$DEMO/bank.pid" "$DEMO/bank.log" "$BIN/order-bank" --listen "$bank" --file "$DEMO/bank.jsonl"
  wait_for 30 "the bank" http_ok "${bank##*:}" /health || { tail_log "$DEMO/bank.log" && return 1; }
  for worker in worker-1 worker-2; do
    start_process "$DEMO/$worker.pid" "$DEMO/$worker.log" "$BIN/order-worker" --address "$address" --bank "http://$bank"
  done
  "$BIN/order-demo" --address "$address" --bank-file "$DEMO/bank.jsonl" --notes "$DEMO/notes" \
    --prefix "order-$(now)" --approval-deadline-ms $((DEMO_APPROVAL_DEADLINE_S * 1000)) 2>"$DEMO/order-demo.log" &
  echo "$! $(started_at $!)" >"$DEMO/order-demo.pid"
  DEMO_PID=$!
  # Four parcels are out, so orders are at every step; two thirds are still to come.
  if wait_for 120 "the first parcels" bank_has ship 4; then "$@" || result=1; else result=1; fi
  if [ "$result" != 0 ]; then
    tail_log "$DEMO/order-demo.log"
    return "$result"
  fi
  wait "$DEMO_PID" || result=$?
  [ "$result" = 0 ] || tail_log "$DEMO/order-demo.log"
  return "$result"
}

demo_prepare() {
  take_lock demo
  rm -rf "$DEMO"
  mkdir -p "$DEMO"
  : >"$DEMO/notes"
  trap demo_interrupted EXIT
  trap 'exit 130' INT TERM
}

demo_start_engine() {
  start_process "$DEMO/engine.pid" "$DEMO/engine.log" "$BIN/harvest" dev --store "$DEMO/harvest.db" \
    --grpc-listen "127.0.0.1:$(port_of demo-grpc)" --http-listen "127.0.0.1:$(port_of demo-http)"
  wait_ready "the engine" "$DEMO/engine.pid" "$(port_of demo-http)" "$DEMO/engine.log"
}

demo_break_engine() {
  local pid
  pid=$(pid_of "$DEMO/engine.pid") || { warn "the engine is not running" && return 1; }
  kill -KILL "$pid"
  wait_for 10 "the engine to die" not_running "$DEMO/engine.pid" || return 1
  demo_note "killed the engine (process $pid, SIGKILL) after $(bank_calls charge) charges and $(bank_calls ship) parcels"
  demo_start_engine || return 1
  demo_note "started it again on the same file: process $(pid_of "$DEMO/engine.pid")"
}

demo_embedded() {
  demo_prepare
  say "engine: harvest dev on $DEMO/harvest.db; bank: its own process and file; two workers; twenty orders"
  demo_start_engine || die "the engine did not start"
  demo_run "http://127.0.0.1:$(port_of demo-grpc)" demo_break_engine || die "the demo failed; logs are in $DEMO"
}

# --- on the fleet ------------------------------------------------------------------------------------------------------

shard_owners() { "$BIN/harvest" --address "$(fleet_address)" --output json shard list; }

# owner_ports: the port of each shard's owner, one line a shard (addresses are all on loopback, so the port names the process).
owner_ports() { shard_owners 2>/dev/null | tr ',' '\n' | sed -n 's/.*"address" *: *"[^"]*:\([0-9][0-9]*\)\/*".*/\1/p'; }

all_shards_owned() { [ "$(owner_ports | wc -l)" -eq "$FLEET_SHARDS" ]; }
none_owned_by() { # PORT
  local owners
  owners=$(owner_ports)
  [ "$(printf '%s\n' "$owners" | wc -l)" -eq "$FLEET_SHARDS" ] && ! grep -qxF "$1" <<<"$owners"
}

demo_break_history() {
  local name best='' most=0 count total port killed_at
  total=$FLEET_SHARDS
  for name in $(fleet_names history); do
    count=$(owner_ports | grep -cx "$(fleet_grpc_port "$name")") || true
    if [ "${count:-0}" -gt "$most" ]; then best=$name most=$count; fi
  done
  [ -n "$best" ] || { warn "no history process owns a shard" && return 1; }
  port=$(fleet_grpc_port "$best")
  fleet_kill "$best" >/dev/null || return 1
  killed_at=$(now)
  demo_note "killed $best (SIGKILL), the owner of $most of $total shards, after $(bank_calls charge) charges and $(bank_calls ship) parcels"
  wait_for 30 "the other history process to own all shards" none_owned_by "$port" || return 1
  demo_note "the other history process owns all $total shards, within $(($(now) - killed_at + 1)) s"
  fleet_start "$best" || return 1
  demo_note "started $best again"
}

fleet_stop_demo() { (fleet_down) || warn "the fleet could not be stopped; ./x fleet down"; }

demo_fleet() {
  local name names
  need_postgres
  need_redis
  demo_prepare
  take_lock fleet
  for name in $(fleet_names); do
    if running "$(fleet_pid_file "$name")"; then die "a fleet is running; ./x fleet down first"; fi
  done
  DEMO_FLEET=yes
  pg_start dev
  redis_start dev
  fleet_migrate
  names=$(fleet_names)
  for name in $names; do fleet_start_one "$name"; done
  # shellcheck disable=SC2086 # one word per name
  fleet_wait $names
  fleet_status
  wait_for 30 "an owner for each of the $FLEET_SHARDS shards" all_shards_owned || die "not every shard has an owner; logs are in $STATE/fleet"
  demo_run "$(fleet_address)" demo_break_history || die "the demo failed; logs are in $DEMO and $STATE/fleet"
}

demo_command() {
  DEMO_FLEET=no
  case ${1:-} in
    '')
      build_workspace
      demo_embedded
      ;;
    --fleet)
      build_workspace
      demo_fleet
      ;;
    *) die "usage: ./x demo [--fleet]" ;;
  esac
  demo_cleanup
  if [ "$DEMO_FLEET" = yes ]; then
    fleet_down
    drop_lock fleet
  fi
  drop_lock demo
}
