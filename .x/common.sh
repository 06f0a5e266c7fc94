# shellcheck shell=bash
# Messages, ports, HTTP probes and background processes: what every other part of ./x uses.

say() { printf '%s\n' "$*"; }
warn() { printf 'x: %s\n' "$*" >&2; }
die() {
  printf 'x: %s\n' "$*" >&2
  exit 1
}

# Seconds since the epoch; deadlines are kept in whole seconds.
now() { date +%s; }

# wait_for SECONDS WHAT COMMAND..: runs the command until it succeeds or the deadline passes.
wait_for() {
  local deadline what=$2
  deadline=$(($(now) + $1))
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$(now)" -ge "$deadline" ]; then
      warn "gave up waiting for $what"
      return 1
    fi
    sleep 0.1
  done
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A random loopback port nobody listens on, below the range that the kernel hands to outgoing connections.
free_port() {
  local port
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    port=$((20000 + RANDOM % 12000))
    if ! port_open "$port"; then
      echo "$port"
      return
    fi
  done
  die "found no free loopback port between 20000 and 32000"
}

# port_of NAME [PREFERRED]: the port of a named listener, the same in every call so that it survives restarts.
port_of() {
  local file=$STATE/ports/$1 preferred=${2:-} port
  if [ -s "$file" ]; then
    cat "$file"
    return
  fi
  mkdir -p "$STATE/ports"
  if [ -n "$preferred" ] && ! port_open "$preferred"; then
    port=$preferred
  else
    port=$(free_port)
    while grep -qxF "$port" "$STATE"/ports/* 2>/dev/null; do port=$(free_port); done
  fi
  echo "$port" >"$file"
  echo "$port"
}

# http_ok PORT PATH: true if a GET on the loopback port answers 200. Needs no curl.
http_ok() {
  local status
  status=$(
    exec 2>/dev/null 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
    printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3
    IFS= read -r -t 5 line <&3 || exit 1
    printf '%s' "$line"
  ) || return 1
  case $status in *" 200 "* | *" 200") return 0 ;; *) return 1 ;; esac
}

random_hex() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# --- background processes -------------------------------------------------------------------------------------------
# A process is named by a pid file that holds "PID START": a recycled pid has another start time, so ./x never signals a
# process that it did not start.

# process_state PID: "STATE START", empty if there is no such process. From /proc where there is one: small installations have no ps.
process_state() {
  local line fields
  if [ -r /proc/self/stat ]; then
    { IFS= read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
    # The second field is the name in brackets, which may hold anything; the third is the state, the 22nd the start in ticks since boot.
    read -r -a fields <<<"${line##*) }"
    echo "${fields[0]} ${fields[19]}"
  else
    line=$(ps -o stat= -o lstart= -p "$1" 2>/dev/null) || return 1
    read -r -a fields <<<"$line"
    echo "${fields[0]} $(IFS=_ && echo "${fields[*]:1}")"
  fi
}

started_at() { process_state "$1" | cut -d' ' -f2; }

# pid_of FILE: prints the pid if that process still runs.
pid_of() {
  local pid start state now_start
  [ -s "$1" ] || return 1
  read -r pid start <"$1" || return 1
  read -r state now_start <<<"$(process_state "$pid")"
  [ -n "$start" ] && [ "$now_start" = "$start" ] || return 1
  case $state in Z*) return 1 ;; esac
  echo "$pid"
}

running() { pid_of "$1" >/dev/null; }
not_running() { ! running "$1"; }

# start_process PIDFILE LOG COMMAND..: in a session of its own, so that Ctrl-C in the terminal does not reach it.
start_process() {
  local pid_file=$1 log=$2 pid
  shift 2
  mkdir -p "$(dirname "$pid_file")" "$(dirname "$log")"
  if command -v setsid >/dev/null 2>&1; then
    setsid "$@" >>"$log" 2>&1 </dev/null &
  else
    nohup "$@" >>"$log" 2>&1 </dev/null &
  fi
  pid=$!
  disown "$pid" 2>/dev/null || true
  echo "$pid $(started_at "$pid")" >"$pid_file"
}

# wait_ready WHAT PIDFILE HTTP_PORT LOG: until it answers /health/ready; at once a failure when the process has ended.
wait_ready() {
  local deadline
  deadline=$(($(now) + 60))
  until http_ok "$3" /health/ready; do
    if not_running "$2"; then
      tail_log "$4"
      warn "$1 ended instead of becoming ready; its log is $4"
      return 1
    fi
    if [ "$(now)" -ge "$deadline" ]; then
      tail_log "$4"
      warn "$1 is not ready after 60 s; its log is $4"
      return 1
    fi
    sleep 0.1
  done
}

# stop_process PIDFILE [SIGNAL [SECONDS]]: asks politely, waits, then kills.
stop_process() {
  local pid
  if pid=$(pid_of "$1"); then
    kill "-${2:-TERM}" "$pid" 2>/dev/null || true
    if ! wait_for "${3:-30}" "process $pid to stop" not_running "$1"; then
      kill -KILL "$pid" 2>/dev/null || true
      wait_for 10 "process $pid to die" not_running "$1" || return 1
    fi
  fi
  rm -f "$1"
}

# take_lock NAME: one command of a kind at a time in this checkout; a lock of a dead process is taken over. The lock is a file "PID START"
# that appears whole (a link), so that it always names its holder.
take_lock() {
  local lock=$STATE/locks/$1.lock mine=$STATE/locks/$1.$$ holder heir tries=0
  mkdir -p "$STATE/locks"
  echo "$$ $(started_at $$)" >"$mine"
  until ln "$mine" "$lock" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || die "cannot take the lock $lock; remove it if no other ./x $1 runs"
    holder=$(cat "$lock" 2>/dev/null) || continue
    echo "$holder" >"$mine.holder"
    if running "$mine.holder"; then
      rm -f "$mine" "$mine.holder"
      die "another ./x $1 runs in this checkout (process ${holder%% *})"
    fi
    # Of several that find the same process dead one removes its lock, and only while it is still that one's.
    heir=$lock.${holder// /-}
    if ln "$mine" "$heir" 2>/dev/null; then
      if [ "$(cat "$lock" 2>/dev/null)" = "$holder" ]; then rm -f "$lock"; fi
      rm -f "$heir"
    fi
  done
  rm -f "$mine" "$mine.holder"
}
drop_lock() { rm -f "$STATE/locks/$1.lock"; }

tail_log() {
  [ -f "$1" ] || return 0
  warn "last lines of $1:"
  tail -n "${2:-15}" "$1" >&2
}
