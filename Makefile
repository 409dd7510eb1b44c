# `make reproduce` and `make test` each work on a fresh machine with Python, make and pip; `make help` lists the rest.
# Python 3.11, 3.12 and 3.13 all serve; another than the first there is: `make test PYTHON=python3.13`.
PYTHON ?= $(firstword $(foreach minor,11 12 13,$(shell command -v python3.$(minor))) python3)
VENV := .venv
BIN := $(VENV)/bin
OUT ?= results
# Many tests start Python anew: sources are compiled once for all, also where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo reproduce test test-slow test-portable lint format docs playground notebooks walk clean help

demo: $(VENV)/base ## train two small models in seconds, and write a page that shows them
	$(BIN)/topicscope demo

reproduce: $(VENV)/base ## run the paper's claims; the results go to OUT
	$(BIN)/topicscope reproduce --out $(OUT)

test: lint ## lint, types, layers and the fast tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-slow: $(VENV)/dev ## the tests that take long
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m slow

test-portable: $(VENV)/dev ## the fast tests as other processors compute, all that this one can stand in for
	$(BIN)/python tools/portable.py

lint: $(VENV)/dev ## format, lint, types and layers, without the tests
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports --no-logo

format: $(VENV)/dev ## format the code, and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/docs ## the documentation as a site of plain files, in site/
	$(BIN)/mkdocs build --quiet

playground: $(VENV)/dev ## build the playground's WebAssembly from its C
	$(BIN)/python tools/build_playground.py

notebooks: $(VENV)/dev ## run the notebooks, and keep them with what they print and draw
	$(BIN)/python tools/notebooks.py

walk: $(VENV)/dev ## how large the source is, and how many hops lead from a command to its result
	$(BIN)/python tools/walk.py

clean: ## remove the virtual environment, the results and the site
	rm -rf $(VENV) $(OUT) site

help: ## list all this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# torch first and by itself, at the version that the constraints name.
$(VENV)/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[language]"
	touch $@

$(VENV)/docs: $(VENV)/base
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

$(VENV)/dev: $(VENV)/base
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
