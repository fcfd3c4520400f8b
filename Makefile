# `make serve` runs the embedded model; `make test` runs in a few minutes what a change most likely breaks; `make test-all`
# runs what CI runs; `make test-daily` runs every test, and draws others each day. Only Python 3.11+ is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := setup.py pyproject.toml src/twostroke/backends/cpu/build.py $(shell find csrc -name '*.cpp' -o -name '*.h')

# Each process has whole files of tests: the fixtures of a module are made once. WORKERS: a process for each core.
WORKERS ?= 2
TEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests start the command some hundred times: compiled Python is kept between them, whatever the caller's environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test test-all test-daily lint docs site wheels clean

serve: $(VENV)/.runtime
	$(BIN)/twostroke serve

test: $(VENV)/.test
	$(TEST) --quick

test-all: $(VENV)/.test
	$(TEST) --durations=60 --durations-min=4

# Nothing waits for it: what it finds becomes a fixed case.
test-daily: $(VENV)/.test
	$(TEST) --daily

lint: $(VENV)/.test
	$(BIN)/ruff check src tests tools setup.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate_docs.py --check

# The pages as a site in build/site; every page of the site's menu must be there.
site: $(VENV)/.site
	$(BIN)/mkdocs build --quiet

# Wheels of all systems in dist/, compiled here; nothing is uploaded.
wheels: $(VENV)/.test
	$(BIN)/python -m tools.wheels

docs: $(VENV)/.test
	$(BIN)/python tools/generate_docs.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Twostroke needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Python's compiled files: where PYTHONDONTWRITEBYTECODE is set, each start would compile the package anew without them.
COMPILED = $(BIN)/python -m compileall -q -j 0 src/twostroke

# A test environment is a runtime too: what it installs is not installed again.
$(VENV)/.runtime: $(BIN)/python $(NATIVE)
	@echo "Installing and compiling the kernels that this machine runs best: a minute or two."
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@$(COMPILED)
	@touch $@

# It asks for an older NumPy than the one that tests run with, and works with this one: what it needs is in `test`.
JUDGE := mistral-common==1.13.1

$(VENV)/.site: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check 'mkdocs-material==9.8.2'
	@touch $@

# Tests compare all levels that this machine runs.
$(VENV)/.test: $(BIN)/python $(NATIVE)
	@echo "Installing what tests need, and compiling the kernels: two to three minutes."
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(JUDGE)
	$(BIN)/python src/twostroke/backends/cpu/build.py --levels runnable
	@$(COMPILED)
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf build dist src/*.egg-info src/twostroke/backends/cpu/lib
