#!/usr/bin/env bash
# House rules that no other tool checks. Prints each breach as FILE:LINE: what; exit 1 if there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
faults=0

report() { # reads lines; each is a breach
  local line
  while IFS= read -r line; do
    [ -n "$line" ] || continue
    echo "$line"
    faults=$((faults + 1))
  done
}

rust_files() { find proto shared services integration-tests -name '*.rs' -not -path '*/target/*' | sort; }

# A file of more than 500 lines says why in a `// long: reason` line.
report < <(rust_files | while IFS= read -r file; do
  lines=$(wc -l <"$file")
  if [ "$lines" -gt 500 ] && ! grep -q '^ *// long: ..' "$file"; then echo "$file:1: $lines lines; split it or give the reason in a line '// long: ..'"; fi
done)

# Tests wait on signals and conditions, not on time. `// sleep: reason` on the line itself allows one (a poll with a deadline, say).
report < <(rust_files | while IFS= read -r file; do
  awk -v file="$file" '
    BEGIN { test = (file ~ /(^|\/)(tests|integration-tests)\// || file ~ /\/tests\.rs$/) }
    /#\[cfg\(test\)\]/ { test = 1 }
    test && /(tokio::time|thread|time)::sleep\(/ && !/\/\/ sleep: .../ { print file ":" FNR ": a test sleeps; wait for a condition" }
  ' "$file"
done)

# Every service, rpc, message, enum, enum value and field of the public protocol has a comment above it; a field whose type is a message
# is described there.
report < <(find proto/proto/harvest/v1 -name '*.proto' | sort | while IFS= read -r file; do
  awk -v file="$file" '
    { line = $0; sub(/^[ \t]+/, "", line) }
    line ~ /^(service|rpc|message|enum) / || line ~ /^((optional|repeated) )?([a-z][a-z0-9]* [a-z_]+|map<.*> [a-z_]+|[A-Z_0-9]+) = [0-9]+( \[.*\])?;/ {
      if (line !~ /^(syntax|option|package|import|reserved) / && previous !~ /^\/\//) print file ":" FNR ": no comment above: " line
    }
    { if (line != "") previous = line }
  ' "$file"
done)

# What a crate may never depend on (ARCHITECTURE.md has the table).
forbid() { # MANIFEST NAMES..
  local manifest=$1 pattern
  shift
  pattern=$(IFS='|' && echo "$*")
  [ -f "$manifest" ] || return 0
  report < <(awk -v file="$manifest" -v pattern="^($pattern)[. =]" '
    /^\[/ { deps = ($0 == "[dependencies]" || $0 == "[build-dependencies]") }
    deps && $0 ~ pattern { print file ":" FNR ": this crate may not depend on: " $0 }
  ' "$manifest")
}
for pure in workflow-core sdk-replay; do
  forbid shared/$pure/Cargo.toml tokio tracing rand chrono time jiff prost tonic async-trait sqlx redis rusqlite \
    harvest-proto harvest-wire harvest-persistence harvest-rpc harvest-runtime harvest-shards
done
forbid shared/ids/Cargo.toml tokio prost tonic harvest-proto
forbid shared/wire/Cargo.toml tokio sqlx redis rusqlite
forbid shared/persistence/Cargo.toml tonic redis
forbid shared/fleet-config/Cargo.toml sqlx rusqlite
forbid shared/sdk/Cargo.toml harvest-persistence harvest-shards harvest-frontend harvest-history harvest-matching
for manifest in $(find . -name Cargo.toml -not -path './target/*' -not -path './.harvest/*' | sort); do
  case $manifest in
    ./Cargo.toml) ;;
    ./shared/persistence/*) forbid "$manifest" redis ;;
    ./shared/fleet-config/*) forbid "$manifest" sqlx ;;
    ./integration-tests/*) ;;
    *) forbid "$manifest" sqlx redis rusqlite ;;
  esac
done
# A service talks to another only by its protocol; the one binary that hosts them all is `harvest dev`.
for service in frontend history matching timer-scanner config; do
  forbid services/$service/Cargo.toml harvest-frontend harvest-history harvest-matching harvest-timer-scanner harvest-config
done

# Migrations are numbered without gaps and never edited in place (the second half is what review is for).
report < <(n=0; for file in $(find migrations -name '*.sql' 2>/dev/null | sort); do
  n=$((n + 1))
  case $(basename "$file") in "$(printf '%04d' $n)"_*) ;; *) echo "$file:1: expected the number $(printf '%04d' $n)" ;; esac
done)

# Every variable that the chart, the compose file and ./x set is a key of some service (or one of the few that all processes read).
known_variables() {
  printf 'HARVEST_%s\n' LOG_FORMAT CONFIG_FILE STATE TEST_BIN
  awk 'FNR == 1 { table = "" }
    /^\[/ { table = $0; gsub(/[][ ]/, "", table); table = toupper(table) "__"; gsub(/\./, "__", table) }
    /^[a-z_]+ *=/ { key = $0; sub(/ *=.*/, "", key); print "HARVEST_" table toupper(key) }' deploy/config/*.default.toml
}
if [ -d deploy/config ]; then
  known=$(known_variables)
  report < <({ grep -onE '\bHARVEST_[A-Z0-9_]+' deploy/compose.yaml helm/harvest/templates/*.yaml .x/fleet.sh || true; } | sort -u -t: -k1,1 -k3,3 |
    while IFS=: read -r file number variable; do
      grep -qxF "$variable" <<<"$known" || echo "$file:$number: no service has the key of $variable"
    done)
fi

# Every relative link of the documents leads somewhere.
report < <(find . -name '*.md' -not -path '*/node_modules/*' -not -path './target/*' -not -path './.harvest/*' -not -path './.git/*' | sort | while IFS= read -r file; do
  # grep fails on a file without links; that must not end the loop.
  { grep -noE '\]\([^)#: ]+(#[^)]*)?\)' "$file" || true; } | while IFS=: read -r number link; do
    target=${link#*](}
    target=${target%)}
    target=${target%%#*}
    [ -e "$(dirname "$file")/$target" ] || echo "$file:$number: broken link: $target"
  done
done)

[ "$faults" = 0 ] || { echo "$faults breaches of the house rules"; exit 1; }
