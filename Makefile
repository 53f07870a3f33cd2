# `make demo` and `make test` need only Python 3.11+ with venv: they make .venv first. CI calls the same targets.

PYTHON ?= python3
BIN := .venv/bin
MADE := .venv/.made

.PHONY: all venv train demo test check bare bench record docs pin clean

all: check test

venv: $(MADE)

$(MADE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo 'Python 3.11 or newer with venv is needed. On Debian and Ubuntu: apt-get install python3-venv;'; \
		echo 'or name another interpreter: make PYTHON=/path/to/python3.12'; exit 1; }
	@echo 'Setting up .venv: about a minute, once'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check pip==25.3
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[sql,sat,smt,maths,shop,report]' --group dev
	@touch $(MADE)

train: venv  ## torch and scikit-learn as well: what learns selectors, and its tests
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[train]'

demo: venv  ## the whole experiment on sample data: no key, no network
	@$(BIN)/mulligan demo

test: venv  ## all tests that need no model
	@$(BIN)/pytest -n 2

check: venv  ## format, lint, types, architecture, documentation
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest tests/test_architecture.py tests/test_docs.py

bare: venv  ## an install with no extra, in an environment that is thrown away
	@set -e; bare=$$(mktemp -d); trap 'rm -rf "$$bare"' EXIT; \
	$(PYTHON) -m venv "$$bare"; \
	"$$bare/bin/python" -m pip install -qq --disable-pip-version-check -c constraints.txt .; \
	"$$bare/bin/python" tests/bare_install.py

bench: venv  ## figures of docs/results, as ratios within one run
	@$(BIN)/python -m bench

record: venv  ## make the demo's recording again, with OPENAI_BASE_URL or a GGUF file
	@$(BIN)/mulligan record --to src/mulligan/sample/recording.jsonl

docs: venv  ## the generated sections of the documentation
	@$(BIN)/python scripts/docs.py

pin: venv  ## constraints.txt: every version that this environment holds
	@$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

clean:
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	@find . -name __pycache__ -not -path './.venv/*' -exec rm -rf {} +
