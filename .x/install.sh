# shellcheck shell=bash
# What ./x needs on the machine. On Debian and Ubuntu it is installed (as root or by sudo) after saying what; elsewhere the exact
# commands are printed. Nothing is looked up again once it is there, so the second run costs nothing.

RUST_MINIMUM=1.94

is_debian() { [ -f /etc/debian_version ] && command -v apt-get >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# apt_install PACKAGE..: without starting the services that the packages bring, and without a default Postgres cluster.
apt_install() {
  is_debian || return 1
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; then
    die "missing packages; run as root: apt-get install -y --no-install-recommends $*"
  fi
  say "installing with apt-get: $*"
  local made_policy=no log=$STATE/install.log
  mkdir -p "$STATE"
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
    as_root chmod 755 /usr/sbin/policy-rc.d
    made_policy=yes
  fi
  if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    as_root mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
  fi
  local result=0
  as_root apt-get update >"$log" 2>&1 || warn "apt-get update failed; trying with the lists there are"
  as_root env DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 \
    apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@" >>"$log" 2>&1 || result=$?
  [ "$made_policy" = no ] || as_root rm -f /usr/sbin/policy-rc.d
  if [ "$result" != 0 ]; then
    tail_log "$log"
    die "apt-get could not install: $*"
  fi
}

# find_program NAME FOLDER..: in PATH or in one of the folders; prints the path.
find_program() {
  local name=$1 folder
  if command -v "$name" >/dev/null 2>&1; then
    command -v "$name"
    return
  fi
  shift
  for folder in "$@"; do
    if [ -x "$folder/$name" ]; then
      echo "$folder/$name"
      return
    fi
  done
  return 1
}

# The folder of the newest Postgres server binaries.
find_postgres() {
  local folder initdb
  for folder in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -t/ -k5 -rn) /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin /usr/pgsql-*/bin; do
    if [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ]; then
      echo "$folder"
      return
    fi
  done
  initdb=$(command -v initdb) || return 1
  folder=$(dirname "$(readlink -f "$initdb" 2>/dev/null || echo "$initdb")")
  [ -x "$folder/postgres" ] || return 1
  echo "$folder"
}

need_postgres() {
  if ! find_postgres >/dev/null; then
    apt_install postgresql || die "Postgres 15 or newer is missing. macOS: brew install postgresql@17. Fedora: sudo dnf install postgresql-server. Arch: sudo pacman -S postgresql. Then run this again."
  fi
  PG_BIN=$(find_postgres) || die "installed Postgres, but initdb and postgres are not in /usr/lib/postgresql/*/bin nor in PATH"
}

need_redis() {
  if ! find_program redis-server /usr/sbin /usr/local/bin /opt/homebrew/bin >/dev/null; then
    apt_install redis-server || die "Redis 6 or newer is missing. macOS: brew install redis. Fedora: sudo dnf install redis. Arch: sudo pacman -S redis. Then run this again."
  fi
  REDIS_SERVER=$(find_program redis-server /usr/sbin /usr/local/bin /opt/homebrew/bin) || die "redis-server is not in PATH"
}

rust_is_new_enough() {
  local found
  found=$(rustc --version 2>/dev/null | awk '{print $2}') || return 1
  [ "$(printf '%s\n%s\n' "$RUST_MINIMUM" "$found" | sort -t. -k1,1n -k2,2n | head -n1)" = "$RUST_MINIMUM" ]
}

# A Rust toolchain and a C compiler (SQLite and ring are compiled from source).
need_rust() {
  if ! command -v cargo >/dev/null 2>&1 && [ -x "$HOME/.cargo/bin/cargo" ]; then PATH=$HOME/.cargo/bin:$PATH; fi
  if ! command -v cc >/dev/null 2>&1; then
    apt_install gcc libc6-dev || die "a C compiler is missing. macOS: xcode-select --install. Fedora: sudo dnf install gcc. Arch: sudo pacman -S gcc. Then run this again."
  fi
  if ! rust_is_new_enough; then install_rust; fi
  rust_is_new_enough || die "Rust $RUST_MINIMUM or newer is needed, found: $(rustc --version 2>/dev/null || echo none). Run: rustup update stable && rustup default stable"
}

install_rust() {
  if ! command -v rustup >/dev/null 2>&1; then
    is_debian || die "Rust $RUST_MINIMUM or newer is missing. Run: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y   and then this again."
    command -v curl >/dev/null 2>&1 || apt_install curl ca-certificates
    say "installing Rust with rustup into $HOME/.cargo"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --no-modify-path --profile minimal -c clippy -c rustfmt ||
      die "rustup could not be installed; see https://rustup.rs"
    PATH=$HOME/.cargo/bin:$PATH
    return
  fi
  say "updating Rust with rustup"
  if ! rustup toolchain install stable --profile minimal -c clippy -c rustfmt || ! rustup default stable; then
    warn "rustup could not install the stable toolchain"
  fi
}

# Builds every binary once. Always the whole workspace: building one package alone unifies features differently and compiles twice.
build_workspace() {
  need_rust
  say "building (the first time takes some minutes; then seconds)"
  cargo build --workspace --quiet || die "the build failed"
}
