# `make` alone lists the targets. Every target sets up what it needs, once, in .venv.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
# What the formats were when they were last generated: they may grow, never change.
BASELINE := proto/baseline.binpb
BENCH ?= all

.PHONY: help setup test check fix proto bench soak clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## Create .venv with everything the project needs (done once)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Lograft needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

test: setup ## Run everything that must be green
	@$(BIN)/python -m pytest

soak: setup ## The crash and power-loss tests, ten times as long
	@LOGRAFT_TEST_EFFORT=10 $(BIN)/python -m pytest tests/crash tests/property --timeout 3600

check: setup ## Format, lint, types, import rules, proto rules, freshness of generated code
	@$(BIN)/ruff format --check --quiet . || { echo "formatting differs: run 'make fix'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 3
	@$(BIN)/buf lint proto
	@$(BIN)/buf breaking proto --against $(BASELINE)
	@$(BIN)/python proto/generate.py --check

fix: setup ## Format the code and mend what the linter can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

proto: setup ## Generate the Python code of proto/lograft/v1 again (refused if a change would break readers)
	@$(BIN)/buf breaking proto --against $(BASELINE)
	@$(BIN)/python proto/generate.py
	@$(BIN)/buf build proto -o $(BASELINE)

# ZooKeeper, to compare the quorum with, comes in the jars of pyspark: some 400 MB that only benchmarks need.
$(VENV)/.bench: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

bench: $(VENV)/.bench ## Measure (all, or one: make bench BENCH=storage)
	@$(BIN)/python -m benchmarks $(BENCH)

clean: ## Remove the set-up and every cache
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
