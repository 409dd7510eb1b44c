# `make reproduce` and `make test` each work on a fresh machine with Python 3.11, make and pip.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
OUT ?= results

.PHONY: reproduce test test-slow lint clean

reproduce: $(VENV)/base
	$(BIN)/topicscope reproduce --out $(OUT)

test: lint
	$(BIN)/python -m pytest -q -n 2

test-slow: $(VENV)/dev
	$(BIN)/python -m pytest -q -n 2 -m slow

lint: $(VENV)/dev
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# torch first and by itself, at the version that the constraints name.
$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[language]"
	touch $@

$(VENV)/dev: $(VENV)/base
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) $(OUT)
