#!/usr/bin/env bash
# Pin every dependency for every platform and Python we support, with hashes.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_CUSTOM_COMPILE_COMMAND="make requirements"
uv=${UV:-.venv/bin/uv}
compile() { "$uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header "$@"; }
compile pyproject.toml --output-file requirements/runtime.txt
compile pyproject.toml --extra dev --constraint requirements/runtime.txt --output-file requirements/dev.txt
compile --constraint requirements/dev.txt --output-file requirements/setup.txt - <<<uv
