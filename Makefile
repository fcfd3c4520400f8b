# Two commands: `make serve` runs the embedded model, `make test` runs every test. Only Python 3.11+ is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := setup.py pyproject.toml $(wildcard csrc/*/*.cpp csrc/*/*/*.h src/twostroke/backends/cpu/build.py)

.PHONY: serve test lint docs clean

serve: $(VENV)/.runtime
	$(BIN)/twostroke serve

test: $(VENV)/.test
	$(BIN)/python -m pytest

lint: $(VENV)/.test
	$(BIN)/ruff check src tests tools setup.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate_docs.py --check

docs: $(VENV)/.test
	$(BIN)/python tools/generate_docs.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Twostroke needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A test environment is a runtime too: what it installs is not installed again.
$(VENV)/.runtime: $(BIN)/python $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: $(BIN)/python $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf build dist src/*.egg-info src/twostroke/backends/cpu/lib
