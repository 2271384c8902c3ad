# Two commands for a newcomer: `make demo` and `make test`. Both make `.venv` and install what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test lint types format install clean help

help:
	@echo "make demo    train on the bundled graphs of countries and ask questions (about two minutes)"
	@echo "make test    run the tests"
	@echo "make lint    ruff; make types: mypy --strict; make format: rewrite the sources"

# torch first and pinned (constraints.txt), so that nothing that depends on it picks another build.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt torch
	$(PIP) install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

install: $(VENV)/.installed

demo: install
	$(BIN)/python -m refactorgnn.demo --out .demo

test: install
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
