# The commands of this repository; `make help` lists them. Everything that is installed goes into $(VENV), except
# what the tests' servers need (see `servers`).

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
PROCESSES ?= 3
JUDGES_ARGS ?=
SLICE ?=
NAME ?=

RUN := $(VENV)/bin/python
# Tests wait, too: three processes keep two cores busy. One that has no tests left takes some of another's.
PYTEST = $(RUN) -m pytest -q -n $(PROCESSES) --dist worksteal
unexport PYTHONDONTWRITEBYTECODE # thousands of processes start, and each would compile what it imports

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # two pips in one environment would break it
.PHONY: help demo test nightly quick portable pythons release judges check lint servers docs bench soak clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## train on handwritten digits, from zips in a zip on local disk and on S3, cached and traced
	$(RUN) examples/digits/train.py

test: servers ## what a change must not break, PROCESSES (3) at once; PYTEST_ARGS="-k zip" chooses
	$(PYTEST) -m "not nightly" $(PYTEST_ARGS)

nightly: servers ## the other tests, in six slices; SLICE=2 runs one
	$(RUN) -m tests.nightly $(SLICE)

quick: $(VENV)/.test ## the tests that need no server
	$(PYTEST) -m quick $(PYTEST_ARGS)

portable: $(VENV)/.test ## the quick tests once more, without the names that only Linux has
	FSABS_TESTS_HIDE=1 $(PYTEST) -m quick $(PYTEST_ARGS)

pythons: $(VENV)/.test ## the quick tests on every other Python of this machine, on the newest as `portable` does
	$(RUN) -m tests.pythons $(PYTEST_ARGS)

release: $(VENV)/.test ## build the wheel and the source distribution, and try them with each extra by itself, in its lowest versions
	$(RUN) -m tests.release

judges: $(VENV)/.test ## the test suites of other projects, pinned; JUDGES_ARGS=--short is the part of CI; writes tests/judges/RESULTS.txt
	$(RUN) -m tests.judges $(JUDGES_ARGS)

check: lint test nightly ## everything, both tiers whole

lint: $(VENV)/.test ## ruff, mypy, hadolint
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy --num-workers 2
	$(VENV)/bin/hadolint docker/prepare/Dockerfile

servers: $(VENV)/.test ## what the tests' servers need: Hadoop's jars, Debian's Ceph packages
	$(RUN) -m tests.servers install

docs: $(VENV)/.docs $(VENV)/.test ## the documentation, into docs/_build/html
	$(RUN) -m sphinx -W --keep-going -q -b html docs docs/_build/html

bench: $(VENV)/.test ## measure against the peers; NAME="s3_zip local" chooses (python -m benchmarks --list), NAME="--against main local" compares
	$(RUN) -m benchmarks $(NAME)

soak: servers ## the randomised tests with new seeds for SOAK_MINUTES (60); writes tests/soak/RESULTS.txt
	$(RUN) -m tests.soak $(PYTEST_ARGS)

clean: ## remove all that these commands made, the virtual environment included
	rm -rf $(VENV) .venv-* build dist *.egg-info docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra of setup.cfg: `pip` runs again when what it would install may have changed. A module is compiled
# when it is first imported: to compile all of them would take longer than to install them.
$(VENV)/.demo $(VENV)/.test $(VENV)/.docs: $(VENV)/.%: setup.cfg pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fsabs needs Python 3.11 or newer, and $(PYTHON) is `$(PYTHON) --version 2>&1`."; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "$(PYTHON) has no venv module; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; } >&2
	$(PYTHON) -m venv --upgrade-deps $(VENV)
