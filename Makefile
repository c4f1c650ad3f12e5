# `make demo` and `make test` need nothing but Python 3.11 or newer: each sets up what it uses.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup toolchain demo test faults e2e unit lint format docs bench requirements clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(READY) ## virtual environment with all dependencies, in .venv

$(READY): requirements/dev.txt requirements/setup.txt pyproject.toml scripts/setup.sh
	@PYTHON=$(PYTHON) scripts/setup.sh $(VENV)
	@touch $@

toolchain: $(READY) ## engine and cluster binaries, in the user's cache
	@$(BIN)/provisioner toolchain install

demo: toolchain ## a graph store, a training job and their removal, on a local cluster
	@$(BIN)/provisioner demo

test: toolchain ## all that a change must pass, on a real API server, kubelet and Pulumi engine
	@$(BIN)/pytest -m "not training" tests/unit \
		$(addprefix tests/e2e/,path engine cluster flyte janitor registry sandbox toolchain) tests/faults

faults: toolchain ## every fault: a kill between every two side effects, and what fails, hangs or is away meanwhile
	@trap '$(BIN)/provisioner sandbox down --name faults' EXIT; \
	$(BIN)/provisioner sandbox up --name faults; \
	PROVISIONER_TESTS_SANDBOX=faults $(BIN)/pytest tests/faults --whole -n 2 --dist worksteal

e2e: toolchain ## every test on a real cluster: those of `make test`, and the longer ones of commands
	@$(BIN)/pytest tests/e2e

unit: $(READY) ## the tests that need no cluster
	@$(BIN)/pytest tests/unit

lint: $(READY) ## ruff, mypy and the layers of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY) ## format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: toolchain ## figures for docs/performance.md
	@$(BIN)/python tests/bench/registry_bench.py
	@$(BIN)/python tests/bench/listing_bench.py
	@$(BIN)/python tests/bench/fleet_bench.py
	@$(BIN)/python tests/bench/latency_bench.py

docs: $(READY) ## the references in docs/ that are made from the code
	@$(BIN)/provisioner schema --markdown > docs/spec.md

requirements: $(READY) ## pin the newest versions that pyproject.toml allows, with hashes
	@scripts/requirements.sh

clean: ## remove what was built in the checkout (the toolchain stays in the user's cache)
	@rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
