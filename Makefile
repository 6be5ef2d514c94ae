# `make demo` and `make test` are all a clean checkout needs: both set up .venv first, once.
#   PYTHON=/path/to/python3.12 make test     chooses the interpreter (3.11 or newer)
#   PYTEST_WORKERS=8 make test               runs the tests on more than two processes

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_WORKERS ?= 2
PYTEST_ARGS ?=
MUTANTS ?= 10000

.DEFAULT_GOAL := help
.PHONY: help install demo test test-thirdparty lint format docs table rules fuzz bench wheel clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

install: $(INSTALLED)  ## set up .venv with everything

# A name on PATH is not yet an interpreter (version managers leave shims), so each candidate is started.
$(INSTALLED): pyproject.toml constraints.txt
	@set -e; \
	for python in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14; do \
	    if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	    then found=$$python; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	    echo "metalwright needs Python 3.11 or newer with the venv module; set PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	echo "setting up $(VENV) with $$found (a few minutes, once)"; \
	"$$found" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)  ## run the built-in kernels, check them, write and inspect an artifact
	$(BIN)/metalwright demo

test: lint  ## lint, types, import contract, docs, then every test
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

test-thirdparty: $(INSTALLED)  ## shaders over the Metal headers of other packages (minutes)
	METALWRIGHT_THIRDPARTY=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadscope tests/thirdparty $(PYTEST_ARGS)

lint: $(INSTALLED)  ## everything of `make test` that runs no kernel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(VENV)/site

format: $(INSTALLED)  ## rewrite the Python files in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

table: $(INSTALLED)  ## rewrite docs/reference/functions.md from the headers (half a minute)
	$(BIN)/python tests/msl/support_table.py

rules: $(INSTALLED)  ## rewrite docs/reference/rules.md from the linter's rules
	$(BIN)/python -m metalwright.lint.page docs/reference/rules.md

fuzz: $(INSTALLED)  ## run ten thousand damaged kernels; MUTANTS=n changes the number
	METALWRIGHT_FUZZ_MUTANTS=$(MUTANTS) $(BIN)/python -m pytest -n $(PYTEST_WORKERS) tests/fuzz

bench: $(INSTALLED)  ## measure compile time, launch overhead and throughput
	@set -e; for bench in benchmarks/bench_*.py; do echo "== $$bench"; $(BIN)/python "$$bench"; done

wheel: $(INSTALLED)  ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) site dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
