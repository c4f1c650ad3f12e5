#!/usr/bin/env bash
# Make the virtual environment: exact versions, hashes checked.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:?usage: scripts/setup.sh VENV}
python=${PYTHON:-python3}
steps=3

say() { printf '[%s/%s] %s\n' "$1" "$steps" "$2" >&2; }
fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }

command -v "$python" >/dev/null || fail "$python is not on PATH" "install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old" "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ..."

say 1 "virtual environment in $venv ($("$python" --version))"
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -q && apt-get install -q -y --no-install-recommends python3-venv
  else
    fail "$python cannot make virtual environments (no ensurepip)" "install the package python3-venv"
  fi
fi
[ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"

say 2 "dependencies ($(grep -c '==' requirements/dev.txt) packages)"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
# uv installs in seconds what takes pip minutes; where only pip is configured for a mirror, pip does it.
pip install --require-hashes --requirement requirements/setup.txt
"$venv/bin/uv" pip install --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes --requirement requirements/dev.txt ||
  pip install --progress-bar on --require-hashes --requirement requirements/dev.txt

say 3 "this project"
pip install --no-deps --no-build-isolation --editable .
