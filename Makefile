# Needs: Debian's python3.11, python3.11-venv and make. Java comes from PyPI.
#   make setup   an environment in .venv with the pinned versions
#   make demo    two stream processes on recorded files, and a page to look at (make demo-live: with servers)
#   make test    all tests, the fast ones first
SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
PYTEST_ARGS ?=
# Nothing that is not in the lock; builds (PySpark comes as source) use the pinned tools too.
INSTALL := $(PY) -m pip --disable-pip-version-check install --quiet --no-deps

# The first one that runs, is new enough and can make environments. A name on PATH
# proves nothing: version managers put names there that do not start.
PYTHON ?= $(shell for name in python3.11 python3; do \
	$$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { command -v $$name; break; }; done)

.PHONY: help setup lint test demo demo-live jar clean

help:
	@sed -n '2,4s/^# *//p' Makefile

setup: $(VENV)/ready ;

$(VENV)/ready: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv: apt install python3.11 python3.11-venv" >&2; exit 2; }
	@echo "environment in $(VENV), pinned versions ..."
	@"$(PYTHON)" -m venv $(VENV)
	@$(INSTALL) $$(grep -E '^(setuptools|wheel)==' requirements.lock)
	@$(INSTALL) --no-build-isolation --use-pep517 --requirement requirements.lock
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

# Every Spark session then opens more quickly. Without it the tests are slower and no less true.
$(VENV)/classes: $(VENV)/ready holdfast/engine/session/jars/holdfast.jar
	@echo "class archive of Spark ..."
	@$(VENV)/bin/holdfast doctor --prepare --no-start || echo "no class archive; going on without one"
	@touch $@

# Stops at the first group that fails: what is cheap to know is known first. Tests without Spark run on
# all cores; a Spark session has two of its own.
test: setup $(VENV)/classes lint
	@sh tests/services/install.sh $(VENV)/services
	$(PY) -m pytest -n auto --dist worksteal $(PYTEST_ARGS) tests --ignore=tests/spark --ignore=tests/live
	$(if $(wildcard tests/spark/test_*.py),$(PY) -m pytest $(PYTEST_ARGS) tests/spark)
	$(if $(wildcard tests/live/test_*.py),$(PY) -m pytest $(PYTEST_ARGS) tests/live)

lint: setup
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/ruff format --quiet --check .
	$(VENV)/bin/mypy --no-error-summary

demo: setup
	@$(VENV)/bin/holdfast doctor --no-start
	@$(PY) examples/demo.py build/demo

# Needs mosquitto and PostgreSQL (sh tests/services/install.sh); starts its own and ends them.
demo-live: setup
	@PYTHONPATH=. $(PY) examples/demo_live.py build/demo-live

bench-%: setup
	$(PY) -m bench.$*

soak-%: setup
	$(PY) -m bench.soak_$*

# Only for who changes jvm/: the jar is committed. Needs a JDK.
jar: setup
	$(PY) jvm/build.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .hypothesis
