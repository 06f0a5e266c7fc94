# shellcheck shell=bash
# A private Postgres and a private Redis on loopback ports, one instance of each per NAME ("dev" for the fleet, "test" for ./x test, "bench" for ./x bench).
# Both ask for a random password that only this checkout's state folder holds: loopback is shared by all users of a machine.

# Postgres refuses to run as root; as root its files belong to the postgres user and its programs run as that user.
pg_user_run() {
  if [ "$(id -u)" = 0 ]; then
    setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"
  else
    "$@"
  fi
}

# pg_home NAME: where the instance lives. A checkout that the postgres user cannot enter (under /root, say) is served from /var/tmp.
pg_home() {
  local home=$STATE/pg-$1 folder
  if [ "$(id -u)" = 0 ]; then
    folder=$STATE
    mkdir -p "$folder"
    if ! pg_user_run test -x "$folder" 2>/dev/null || ! pg_user_run sh -c 'cd "$1"' sh "$folder" 2>/dev/null; then
      home=/var/tmp/harvest-$(printf '%s' "$STATE" | cksum | cut -d' ' -f1)/pg-$1
    fi
  fi
  echo "$home"
}

pg_url() { # NAME [DATABASE]
  echo "postgres://harvest:$(cat "$STATE/pg-$1.password")@127.0.0.1:$(port_of "pg-$1")/${2:-postgres}"
}

pg_initialise() { # NAME HOME
  local name=$1 home=$2 password log=$STATE/pg-$1.log pw_file
  rm -rf "$home"
  mkdir -p "$home"
  # Under /var/tmp somebody else could have made the folder first.
  [ -O "$(dirname "$home")" ] || die "$(dirname "$home") belongs to another user"
  [ "$(id -u)" != 0 ] || chown postgres:postgres "$home"
  password=$(random_hex)
  (umask 077 && echo "$password" >"$STATE/pg-$name.password")
  pw_file=$home/password
  (umask 077 && echo "$password" >"$pw_file")
  [ "$(id -u)" != 0 ] || chown postgres:postgres "$pw_file"
  (cd "$home" && pg_user_run "$PG_BIN/initdb" -D "$home/data" -U harvest -E UTF8 --locale=C \
    --auth=scram-sha-256 --pwfile="$pw_file") >>"$log" 2>&1 || {
    tail_log "$log"
    die "initdb failed in $home"
  }
  rm -f "$pw_file"
  # fsync stays on: durability is what the product is about. Connections: 16 shard writers, pools of ten processes, tests in parallel.
  cat >>"$home/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 400
shared_buffers = '128MB'
max_wal_size = '1GB'
logging_collector = off
log_min_messages = 'warning'
log_checkpoints = off
CONF
  # What the benchmark reads: statement counts, the WAL of a whole measurement, the instants of commits.
  case $name in bench*)
    cat >>"$home/data/postgresql.conf" <<CONF
shared_preload_libraries = 'pg_stat_statements'
wal_keep_size = '4GB'
track_commit_timestamp = on
CONF
    ;;
  esac
}

# pg_answers PIDFILE HOME: our postmaster says that it takes connections (the file of a killed one names another process).
pg_answers() {
  [ "$(sed -n 1p "$2/data/postmaster.pid" 2>/dev/null)" = "$(pid_of "$1")" ] &&
    [ "$(sed -n 8p "$2/data/postmaster.pid" 2>/dev/null | tr -d ' ')" = ready ]
}

# pg_start NAME: idempotent; leaves the URL in `pg_url NAME`.
pg_start() {
  local name=$1 home pid_file=$STATE/pg-$1.pid log=$STATE/pg-$1.log port
  need_postgres
  home=$(pg_home "$name")
  if running "$pid_file"; then return; fi
  case $home in "$STATE"/*) ;; *) say "the postgres user cannot enter $STATE; Postgres keeps its data in $home" ;; esac
  mkdir -p "$STATE"
  if [ ! -f "$home/data/PG_VERSION" ] || [ ! -s "$STATE/pg-$name.password" ]; then pg_initialise "$name" "$home"; fi
  port=$(port_of "pg-$name")
  # The postmaster itself is the child of ./x (not of pg_ctl), so its pid is known at once.
  if [ "$(id -u)" = 0 ]; then
    start_process "$pid_file" "$log" setpriv --reuid=postgres --regid=postgres --clear-groups -- "$PG_BIN/postgres" -D "$home/data" -p "$port"
  else
    start_process "$pid_file" "$log" "$PG_BIN/postgres" -D "$home/data" -p "$port"
  fi
  if ! wait_for 60 "Postgres on port $port" pg_answers "$pid_file" "$home"; then
    tail_log "$log"
    die "Postgres did not start"
  fi
}

# Fast shutdown (SIGINT): sessions are ended, the checkpoint is written.
pg_stop() { stop_process "$STATE/pg-$1.pid" INT 60; }

# pg_remove NAME: stops and forgets the instance with its data.
pg_remove() {
  local home
  pg_stop "$1"
  home=$(pg_home "$1")
  case $home in */pg-"$1") rm -rf "$home" ;; *) die "refusing to remove $home" ;; esac
  rm -f "$STATE/pg-$1.password" "$STATE/ports/pg-$1"
}

redis_url() { echo "redis://default:$(cat "$STATE/redis-$1/password")@127.0.0.1:$(port_of "redis-$1")/"; }

# redis_start NAME: nothing is saved to disk, because Redis carries hints only.
redis_start() {
  local name=$1 home=$STATE/redis-$1 pid_file=$STATE/redis-$1.pid log=$STATE/redis-$1.log port
  need_redis
  if running "$pid_file"; then return; fi
  mkdir -p "$home"
  port=$(port_of "redis-$name")
  [ -s "$home/password" ] || (umask 077 && random_hex >"$home/password")
  (umask 077 && cat >"$home/redis.conf" <<CONF
port $port
bind 127.0.0.1
dir "$home"
save ""
appendonly no
requirepass $(cat "$home/password")
CONF
  )
  start_process "$pid_file" "$log" "$REDIS_SERVER" "$home/redis.conf"
  if ! wait_for 60 "Redis on port $port" port_open "$port" || ! running "$pid_file"; then
    tail_log "$log"
    die "Redis did not start"
  fi
}

redis_stop() { stop_process "$STATE/redis-$1.pid" TERM 20; }

redis_remove() {
  redis_stop "$1"
  rm -rf "$STATE/redis-$1" "$STATE/ports/redis-$1"
}
