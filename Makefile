# `make help` lists the targets. Everything is installed in .venv on its first use, once.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
SETUP := .venv/.ready
PAPER := .venv/.paper
CONSUMERS := .venv-consumers
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
QUICK := -m "not slow and not consumers and not attack"

.DEFAULT_GOAL := help
.PHONY: help demo reproduce results test lint coverage test-slow test-attack soak \
  test-browser test-consumers test-matrix docs claims newcomer dist clean

help: ## list these targets
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try it
demo: $(CORE) ## fit, certify and compare on a small data set
	$(BIN)/python -m isoproj demo

##@ The paper (its map to the code is paper/README.md)
# Finished cells are kept: the same command goes on where it was stopped.
reproduce: $(PAPER) ## its experiments again, 20 minutes on two cores; FULL=1 two hours
	$(BIN)/python -m paper $(if $(FULL),--full) -o $(or $(OUT),reproduced)

results: $(PAPER) ## the page docs/results.md, from the records that are kept
	$(BIN)/python -m paper --full --report paper/records.jsonl.gz -o docs/results

##@ Test
# Types are checked beside the tests; either fault fails the command. Each of the two
# test processes has a core of its own, so BLAS must not start threads on both.
test: $(SETUP) ## lint, types and tests: what every change needs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy > .venv/mypy.log 2>&1 & types=$$!; \
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal $(QUICK); tested=$$?; \
	wait $$types; typed=$$?; \
	echo "mypy: $$(cat .venv/mypy.log)"; \
	[ $$tested -eq 0 ] && [ $$typed -eq 0 ]

lint: .venv-lint/.ready ## lint and types alone
	.venv-lint/bin/ruff check .
	.venv-lint/bin/ruff format --check .
	.venv-lint/bin/mypy

coverage: $(SETUP) ## which lines the tests run
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal $(QUICK) \
	  --cov --cov-report=term:skip-covered --cov-report=xml

test-slow: $(SETUP) ## the suites that take minutes
	$(BIN)/python -m pytest -m "slow and not browser and not consumers and not attack"

# Seeds and figures are printed; SEED=N runs other attacks.
test-attack: $(SETUP) ## fuzz in exact rationals, forged files, kills, full disks; minutes
	ISOPROJ_ATTACK_SEED=$(SEED) $(ONE_THREAD) \
	  $(BIN)/python -m pytest -n 2 --dist worksteal -m attack tests/attacks

soak: $(SETUP) ## ten minutes of fits in one process: memory, threads and files stay
	$(ONE_THREAD) $(BIN)/python benchmarks/soak.py 600

test-browser: $(SETUP) ## the report in a real Chromium (Debian: chromium, chromium-driver)
	$(BIN)/python -m pytest -m browser tests/reporting

# In an environment of their own (torch is large). The table of differences is printed;
# TABLE=benchmarks/results/consumers.md keeps it.
test-consumers: $(CONSUMERS)/.ready ## PostgreSQL, sentence-transformers, Qdrant: the real ones
	$(ONE_THREAD) $(CONSUMERS)/bin/python -m pytest -m consumers tests/consumers \
	  $(if $(TABLE),--table $(TABLE))

test-matrix: .venv-tools/.ready ## every Python found, and the lowest versions allowed
	.venv-tools/bin/nox --no-error-on-missing-interpreters -s tests lowest

##@ Publish
# A warning is an error, and so is a page that loads anything from another host.
docs: $(SETUP) ## the site, in docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@! grep -rnE '<(script|link|img|iframe)[^>]*(src|href)="(https?:)?//' \
	  --include='*.html' docs/_build/html
	@! grep -rnE '(url\(|@import )["'"'"' ]*(https?:)?//' --include='*.css' docs/_build/html

# Seconds, once the tables in benchmarks/results are as they should be.
claims: $(SETUP) ## README's figures and their ledger, made again
	$(BIN)/python benchmarks/claims.py

# Needs git and chromium; the pictures are in build/newcomer.
newcomer: ## the first ten minutes from a fresh clone, with pictures to look at
	$(PYTHON) benchmarks/newcomer.py build/newcomer

dist: .venv-tools/.ready ## source archive and wheel: built, checked, installed and tried
	rm -rf dist .venv-wheel
	.venv-tools/bin/python -m build --outdir dist .
	.venv-tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd .venv-wheel && bin/isoproj demo && bin/isoproj --version
	rm -rf .venv-wheel

clean: ## remove what these commands made
	rm -rf .venv .venv-* dist docs/_build .mypy_cache .ruff_cache .pytest_cache \
	  .hypothesis .coverage coverage.xml

# uv installs in seconds where it is present; plain venv and pip do the same where not.
define install
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(1) && \
	  uv pip install --quiet --python $(1)/bin/python $(2); \
	else \
	  { [ -x $(1)/bin/python ] || $(PYTHON) -m venv $(1); } && \
	  $(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
	    $(2); \
	fi
	@touch $@
endef

$(CORE): pyproject.toml
	@echo "Installing isoproj in .venv (once; half a minute)"
	$(call install,.venv,-e .)

$(PAPER): $(CORE)
	@echo "Installing what the experiments need in .venv (once)"
	$(call install,.venv,-e '.[plot$(comma)sdp]')

$(SETUP): $(CORE)
	@echo "Installing what the tests need in .venv (once; a minute or two)"
	$(call install,.venv,-e '.[test]')

# Types need these libraries; the others are not looked into.
.venv-lint/.ready: pyproject.toml
	$(call install,.venv-lint,-e '.[lint]')

$(CONSUMERS)/.ready: pyproject.toml
	@echo "Installing the consumers in $(CONSUMERS) (once; some minutes)"
	$(call install,$(CONSUMERS),-e '.[consumers]')

.venv-tools/.ready:
	$(call install,.venv-tools,build twine nox)

comma := ,
