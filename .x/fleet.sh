# shellcheck shell=bash
# The real parts on one machine: two processes of each service, on the private Postgres and Redis ("dev" instances).
# Pid files and logs are in .harvest/fleet/, one pair per process name (history-1, history-2, ..).

FLEET_SERVICES='config history matching timer-scanner frontend'
FLEET_COPIES='1 2'
FLEET_SHARDS=16

fleet_names() { # [SERVICE or NAME]: what it stands for, in start order
  local service copy
  for service in $FLEET_SERVICES; do
    for copy in $FLEET_COPIES; do
      case ${1:-} in
        '' | "$service" | "$service-$copy") echo "$service-$copy" ;;
      esac
    done
  done
}

fleet_pid_file() { echo "$STATE/fleet/$1.pid"; }
fleet_log() { echo "$STATE/fleet/$1.log"; }

# The first frontend has the well-known ports if they are free.
fleet_grpc_port() { case $1 in frontend-1) port_of "$1-grpc" 7233 ;; *) port_of "$1-grpc" ;; esac; }
fleet_http_port() { case $1 in frontend-1) port_of "$1-http" 7240 ;; *) port_of "$1-http" ;; esac; }
fleet_address() { echo "http://127.0.0.1:$(fleet_grpc_port frontend-1)"; }

fleet_migrate() { "$BIN/harvest" migrate --database-url "$(pg_url dev)" --shards "$FLEET_SHARDS"; }

fleet_start_one() {
  local name=$1 pid_file
  pid_file=$(fleet_pid_file "$name")
  if running "$pid_file"; then return; fi
  HARVEST_FLEET=local \
    HARVEST_GRPC_LISTEN=127.0.0.1:$(fleet_grpc_port "$name") \
    HARVEST_HTTP_LISTEN=127.0.0.1:$(fleet_http_port "$name") \
    HARVEST_DATABASE_URL=$(pg_url dev) \
    HARVEST_REDIS_URL=$(redis_url dev) \
    start_process "$pid_file" "$(fleet_log "$name")" "$BIN/harvest-${name%-*}"
}

fleet_ready() { http_ok "$(fleet_http_port "$1")" /health/ready; }

fleet_wait() { # NAME..: until each is ready
  local name
  for name in "$@"; do
    wait_ready "$name" "$(fleet_pid_file "$name")" "$(fleet_http_port "$name")" "$(fleet_log "$name")" || die "the fleet is not up"
  done
}

fleet_up() {
  local name names
  need_postgres
  need_redis
  build_workspace
  pg_start dev
  redis_start dev
  fleet_migrate
  names=$(fleet_names)
  for name in $names; do fleet_start_one "$name"; done
  # shellcheck disable=SC2086 # one word per name
  fleet_wait $names
  fleet_status
  say "gRPC: $(fleet_address)   HTTP: http://127.0.0.1:$(fleet_http_port frontend-1)/api/harvest   logs: $STATE/fleet"
}

# Frontends first, so that nobody is routed to a service that is going away; history hands its shards over only to a living successor.
fleet_down() {
  local name reversed=''
  for name in $(fleet_names); do reversed="$name $reversed"; done
  for name in $reversed; do stop_process "$(fleet_pid_file "$name")" TERM 40; done
  redis_stop dev
  pg_stop dev
}

fleet_status() {
  local name pid state
  printf '%-18s %-8s %-9s %-22s %s\n' PROCESS PID STATE GRPC HTTP
  for name in $(fleet_names); do
    if pid=$(pid_of "$(fleet_pid_file "$name")"); then
      state=starting
      if fleet_ready "$name"; then state=ready; fi
    else
      pid=- state=stopped
    fi
    printf '%-18s %-8s %-9s %-22s %s\n' "$name" "$pid" "$state" "127.0.0.1:$(fleet_grpc_port "$name")" "127.0.0.1:$(fleet_http_port "$name")"
  done
  for name in pg-dev redis-dev; do
    state=ready
    if ! pid=$(pid_of "$STATE/$name.pid"); then pid=- state=stopped; fi
    printf '%-18s %-8s %-9s %-22s %s\n' "${name%-dev}" "$pid" "$state" "127.0.0.1:$(port_of "$name")" -
  done
}

# SIGKILL: no handler runs, as in a crash. Prints what it killed.
fleet_kill() {
  local name pid killed=no
  for name in $(fleet_names "$1"); do
    if pid=$(pid_of "$(fleet_pid_file "$name")"); then
      kill -KILL "$pid"
      wait_for 10 "$name to die" not_running "$(fleet_pid_file "$name")"
      say "killed $name (process $pid)"
      killed=yes
    fi
  done
  [ "$killed" = yes ] || die "nothing to kill: $1 is not running (one of: $(fleet_names | tr '\n' ' ')or a service)"
}

fleet_start() {
  local name names
  names=$(fleet_names "${1:-}")
  [ -n "$names" ] || die "no such process or service: $1 (one of: $(fleet_names | tr '\n' ' ')or a service)"
  pg_start dev
  redis_start dev
  for name in $names; do fleet_start_one "$name"; done
  # shellcheck disable=SC2086 # one word per name
  fleet_wait $names
}

# fleet_alone COMMAND..: nobody else starts, stops or initialises the same processes meanwhile.
fleet_alone() {
  take_lock fleet
  trap 'drop_lock fleet' EXIT
  "$@"
}

fleet_command() {
  local usage="usage: ./x fleet up|down|status|kill NAME|start [NAME]" action=${1:-}
  [ $# -eq 0 ] || shift
  # An empty name would stand for all.
  case "$action $# ${1:+named}" in
    'up 0 ') fleet_alone fleet_up ;;
    'down 0 ') fleet_alone fleet_down ;;
    'status 0 ') fleet_status ;;
    'kill 1 named') fleet_alone fleet_kill "$1" ;;
    'start 0 ' | 'start 1 named') fleet_alone fleet_start "${1:-}" ;;
    *) die "$usage" ;;
  esac
}

migrate_command() {
  need_postgres
  build_workspace
  fleet_alone migrate_alone
}

migrate_alone() {
  pg_start dev
  fleet_migrate
}

# Everything in one process on an embedded store, in the foreground.
dev_command() {
  build_workspace
  mkdir -p "$STATE/dev"
  exec "$BIN/harvest" dev --store "$STATE/dev/harvest.db" "$@"
}
