# Needs make and Python 3.11 or later, nothing else. Everything that is installed goes into .venv.
# Another interpreter: make PYTHON=python3.13 …

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
PACKAGES := reprieve.core reprieve.adapters reprieve.entrypoints
CODE := core adapters entrypoints tests tools benchmarks

# pytest's own options for a run, e.g. make test PYTEST_ARGS="-k shield"
PYTEST_ARGS ?=

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-print-directory

# What is set around us must not reach into .venv.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV UV_PROJECT_ENVIRONMENT UV_PYTHON
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

.PHONY: install
install: $(VENV)/requirements.stamp ## the project and all that it needs, into .venv (every target does it)
# A strict editable install is a tree of links to the modules that exist at that moment, so it is laid anew for every
# target: a module added since would be missing, a deleted one would dangle.
	@$(UV) pip install --quiet --python $(BIN)/python --offline --no-deps --no-build-isolation \
	    --reinstall-package reprieve --config-setting editable_mode=strict --editable .

.PHONY: demo
demo: install ## a sample cluster and bucket: what is kept, orphaned and deleted, and why
	@$(BIN)/reprieve demo

.PHONY: test
test: install ## unit and integration tests
	$(BIN)/pytest --numprocesses auto $(PYTEST_ARGS) tests/unit tests/integration

.PHONY: security
security: install ## the attacks of docs/security.md, on the running controller and the real command
	$(BIN)/pytest --numprocesses auto --durations 5 $(PYTEST_ARGS) tests/security

.PHONY: check
check: lint types contracts coverage wheel ## every gate: lint, types, contracts, coverage, wheel

.PHONY: lint
lint: install ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

.PHONY: types
types: install ## mypy --strict
	$(BIN)/mypy $(addprefix -p ,$(PACKAGES))
	$(BIN)/mypy tools

.PHONY: contracts
contracts: install ## import-linter: who may import what
	$(BIN)/lint-imports

.PHONY: coverage
coverage: install ## every branch of core is run by the unit tests
	$(BIN)/pytest --numprocesses auto --cov --cov-report=term tests/unit

.PHONY: wheel
wheel: install ## the wheel is whole, and works where only attrs is installed
	$(BIN)/python tools/check_wheel.py

.PHONY: bench
bench: install ## every benchmark
	@set -e; for script in benchmarks/bench_*.py; do \
	    test -e "$$script" || { echo "no benchmarks/bench_*.py"; exit 1; }; \
	    echo "== $$script"; $(BIN)/python "$$script"; \
	done

.PHONY: manifests
manifests: install ## write deploy/ anew, as the command prints it for the default configuration
	@set -e; for part in rbac network config deployment kustomization; do \
	    $(BIN)/reprieve manifests --part $$part > deploy/$$part.yaml; \
	done

.PHONY: format
format: install ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Every line has the hashes of what may be installed for it, and every installation asks for them: an index, a mirror or a
# cache that hands out something else stops the build. The files hold for each Python and platform at once (markers).
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
    --no-emit-package reprieve --custom-compile-command "make lock"

.PHONY: lock
lock: $(VENV)/uv.stamp ## resolve requirements/ anew, with hashes, to the newest versions that fit
	$(LOCK) --all-extras --group dev pyproject.toml --output-file requirements/dev.txt
	$(LOCK) --extra all pyproject.toml --constraint requirements/dev.txt --output-file requirements/image.txt
	$(LOCK) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	$(LOCK) --group installer --output-file requirements/uv.txt

.PHONY: clean
clean: ## take away all that make made
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
	    .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/uv.stamp: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "reprieve needs Python 3.11 or later, '$(PYTHON)' is not: make PYTHON=python3.13 …" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes \
	    --requirement requirements/uv.txt
	@touch $@

# sync, not install: a package that left the file leaves .venv too. Compiled, because imports are two to three times
# slower otherwise.
$(VENV)/requirements.stamp: requirements/dev.txt $(VENV)/uv.stamp
	@echo "installing requirements/dev.txt into $(VENV) …"
	@$(UV) pip sync --quiet --python $(BIN)/python --compile-bytecode --require-hashes \
	    requirements/dev.txt requirements/uv.txt
	@touch $@
