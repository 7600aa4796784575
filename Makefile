# Needs make and Python 3.11 or newer; everything else is installed into .venv. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check --no-input
ARGS ?=
AREA ?=
ONLY ?=
JOBS ?= 2

# Which set-up is in place. Both go stale when pyproject.toml changes.
CORE := $(VENV)/.core-installed
DEV := $(VENV)/.dev-installed

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo setup test check fmt claims breakers bench soak python

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(CORE)  ## show a short session: a turn, another version of it, a fork
	@$(BIN)/turnkeeper demo $(ARGS)

setup: $(DEV)  ## create .venv with everything the tests need

test: $(DEV)  ## run every test on all three backends and record the claims they prove
	@$(BIN)/python -m pytest -q --record-claims

check: $(DEV)  ## format, lint, types, import contracts, documents: before every commit
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --strict src
	@$(BIN)/lint-imports
	@$(BIN)/python -m turnkeeper.history.slots.generator --check
	@$(BIN)/python -m pytest -q tests/docs tests/tidy

fmt: $(DEV)  ## format the code and mend what the linter can mend
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

claims: | python  ## count the claims the last full run proved (ARGS='--missing "T savepoints"')
	@$(PYTHON) -m spec.claims $(ARGS)

breakers: $(DEV)  ## plant each known fault, a marked test must fail (AREA="T savepoints" ONLY=T-027 JOBS=2)
	@$(BIN)/python -m spec.replay --area "$(AREA)" --only "$(ONLY)" -j $(JOBS) $(ARGS)

bench: $(DEV)  ## measure our speed beside the floor, in one run
	@$(BIN)/python -m bench.run $(ARGS)

soak: $(DEV)  ## run the long mixed load and check the store after it
	@$(BIN)/python -m bench.soak $(ARGS)

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Turnkeeper needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }

$(BIN)/python: | python
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "Could not create $(VENV): on Debian and Ubuntu install python3-venv, then try again." >&2; \
	  rm -rf $(VENV); exit 1; }

$(CORE): pyproject.toml | $(BIN)/python
	@echo "installing turnkeeper"
	@$(PIP) install --editable .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "installing turnkeeper and its tools (a minute or two)"
	@$(PIP) install --editable '.[postgres,seal,dev]'
	@touch $@ $(CORE)
