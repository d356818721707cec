# Two commands for a newcomer: `make demo` and `make test`.
# `make demo` installs isoproj alone in .venv; `make test` adds what the tests need.
# Both install once; a second run starts at once.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
SETUP := .venv/.ready

.PHONY: demo reproduce results test test-slow test-attack test-browser test-consumers test-matrix docs claims newcomer lint dist clean

demo: $(CORE)
	$(BIN)/python -m isoproj demo

# The experiments of the paper again; paper/README.md maps them to the code. Small samples
# and two seeds take about 20 minutes on two cores, FULL=1 about two hours. Finished cells
# are kept: the same command goes on where it was stopped.
reproduce: .venv/.paper
	$(BIN)/python -m paper $(if $(FULL),--full) -o $(or $(OUT),reproduced)

# The page of results and its figures, from the records that are kept.
results: .venv/.paper
	$(BIN)/python -m paper --full --report paper/records.jsonl.gz -o docs/results

# Types are checked beside the tests; either fault fails the command. Each of the two
# test processes has a core of its own, so BLAS must not start threads on both.
test: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy > .venv/mypy.log 2>&1 & types=$$!; \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not consumers and not attack"; tested=$$?; \
	wait $$types; typed=$$?; \
	echo "mypy: $$(cat .venv/mypy.log)"; \
	[ $$tested -eq 0 ] && [ $$typed -eq 0 ]

test-slow: $(SETUP)
	$(BIN)/python -m pytest -m "slow and not browser and not consumers and not attack"

# Attacks by the thousand: exact rational fuzz, forged files, killed writers and workers,
# full disks, little memory. Seeds and figures are printed; SEED=N runs other attacks.
test-attack: $(SETUP)
	ISOPROJ_ATTACK_SEED=$(SEED) OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -n 2 --dist worksteal -m attack tests/attacks

# Needs the programs chromium and chromedriver (Debian: chromium, chromium-driver).
test-browser: $(SETUP)
	$(BIN)/python -m pytest -m browser tests/reporting

# Real consumers, each with the real thing, in an environment of their own (torch is large).
# The table of differences is printed; TABLE=benchmarks/results/consumers.md keeps it.
CONSUMERS := .venv-consumers
test-consumers: $(CONSUMERS)/.ready
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	  $(CONSUMERS)/bin/python -m pytest -m consumers tests/consumers \
	  $(if $(TABLE),--table $(TABLE))

$(CONSUMERS)/.ready: pyproject.toml
	@echo "Installing the consumers in $(CONSUMERS) (once; some minutes)"
	@[ -x $(CONSUMERS)/bin/python ] || $(PYTHON) -m venv $(CONSUMERS)
	@$(CONSUMERS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -e '.[consumers]'
	@touch $@

# The suite on every Python that is found, and on the lowest versions allowed.
test-matrix: .venv-tools/.ready
	.venv-tools/bin/nox --no-error-on-missing-interpreters -s tests lowest

# Source archive and wheel: built, checked, installed in an empty environment and tried.
dist: .venv-tools/.ready
	rm -rf dist .venv-wheel
	.venv-tools/bin/python -m build --outdir dist .
	.venv-tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd .venv-wheel && bin/isoproj demo && bin/isoproj --version
	rm -rf .venv-wheel

.venv-tools/.ready:
	@[ -x .venv-tools/bin/python ] || $(PYTHON) -m venv .venv-tools
	@.venv-tools/bin/python -m pip install --quiet --disable-pip-version-check \
	  build twine nox
	@touch $@

# The site, in docs/_build/html; a warning is an error, and so is a page that loads
# anything from another host.
docs: $(SETUP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@! grep -rnE '<(script|link|img|iframe)[^>]*(src|href)="(https?:)?//' \
	  --include='*.html' docs/_build/html
	@! grep -rnE '(url\(|@import )["'"'"' ]*(https?:)?//' --include='*.css' docs/_build/html

# README's figures and their ledger, made again: seconds, once the tables in
# benchmarks/results are as they should be.
claims: $(SETUP)
	$(BIN)/python benchmarks/claims.py

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv .venv-consumers .venv-tools .venv-wheel dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# uv installs in seconds where it is present; plain venv and pip do the same where not.
define install
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) .venv && \
	  uv pip install --quiet --python $(BIN)/python -e '$(1)'; \
	else \
	  { [ -x $(BIN)/python ] || $(PYTHON) -m venv .venv; } && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	    -e '$(1)'; \
	fi
	@touch $@
endef

$(CORE): pyproject.toml
	@echo "Installing isoproj in .venv (once; half a minute)"
	$(call install,.)

.venv/.paper: $(CORE)
	@echo "Installing what the experiments need in .venv (once)"
	$(call install,.[plot,sdp])

$(SETUP): $(CORE)
	@echo "Installing what the tests need in .venv (once; a minute or two)"
	$(call install,.[test])
