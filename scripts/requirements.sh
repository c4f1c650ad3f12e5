#!/usr/bin/env bash
# Pin every dependency for every platform and Python we support, with hashes.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_CUSTOM_COMPILE_COMMAND="make requirements"
uv=${UV:-.venv/bin/uv}
compile() { "$uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header "$@"; }
# Flyte 2's SDK accepts this version alone, and what is tested is to be what is installed.
compile pyproject.toml --constraint - --output-file requirements/runtime.txt <<<'rich-click==1.8.9'
compile pyproject.toml --extra dev --extra flyte --extra otel --constraint requirements/runtime.txt --output-file requirements/dev.txt
compile --constraint requirements/dev.txt --output-file requirements/setup.txt - <<<uv
