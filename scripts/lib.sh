# Shared set-up of the scripts in this folder: source it, then call setup_venv.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
TORCH=torch==2.13.0  # what the tests run with; pyproject.toml says what the package accepts

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Print the first Python on the path that is new enough.
find_python() {
  local candidate
  for candidate in python3.11 python3.12 python3.13 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or newer on the PATH; install one, or put its folder first on the PATH"
}

# Make $VENV hold the package, editable, and all that its development needs; quick when it does.
setup_venv() {
  local stamp
  stamp=$VENV/gradientmail-$(cksum <"$ROOT/pyproject.toml" | tr ' ' '-')
  [ -e "$stamp" ] && return
  local pip=("$VENV/bin/python" -m pip --disable-pip-version-check)
  if ! "${pip[@]}" --version >/dev/null 2>&1; then
    say "virtual environment in .venv"
    local python
    python=$(find_python)
    "$python" -m venv "$VENV" || fail "$python -m venv failed; on Debian: apt-get install python3-venv"
  fi
  say "packages (once, and after a change of pyproject.toml)"
  "${pip[@]}" install --quiet --upgrade 'pip>=25.1'
  "$VENV/bin/python" -c 'import torch' 2>/dev/null || "${pip[@]}" install "$TORCH"
  (cd "$ROOT" && "${pip[@]}" install --quiet --editable . --group dev)
  rm -f "$VENV"/gradientmail-*
  touch "$stamp"
}
