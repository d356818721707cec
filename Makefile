# Two commands for a newcomer: `make demo` and `make test`.
# Everything is set up in .venv once; a second run starts at once.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.ready

.PHONY: demo test test-slow test-browser docs lint bench clean

demo: $(SETUP)
	$(BIN)/python -m isoproj demo

test: $(SETUP) lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(SETUP)
	$(BIN)/python -m pytest -m "slow and not browser"

# Needs the programs chromium and chromedriver (Debian: chromium, chromium-driver).
test-browser: $(SETUP)
	$(BIN)/python -m pytest -m browser tests/reporting

# The site, in docs/_build/html; a warning is an error.
docs: $(SETUP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# uv makes the environment in seconds where it is installed; plain venv and pip
# do the same where it is not.
$(SETUP): pyproject.toml
	@echo "Setting up .venv (once; a minute or two)"
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) .venv && \
	  uv pip install --quiet --python $(BIN)/python -e '.[test]'; \
	else \
	  $(PYTHON) -m venv .venv && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'; \
	fi
	@touch $@
