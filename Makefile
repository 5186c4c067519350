# make app: set up and run the app.   make test: set up and pass the checks.   make test-slow: what guards against the rare.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# The tests' home folder: never the user's own. It is kept, so that the model and the data are fetched once.
TEST_HOME ?= $(CURDIR)/.cache/home
# Threads sleep while they wait: of two processes that spin, each keeps the other from its work.
SLEEPING_THREADS := OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
SELDOM_IMPORTED := /tests/|/transformers/models/|/(ray|plotly|sympy|openai|mteb|pip|setuptools|networkx|pygments|mypy|polars)/
# Compiled modules are kept, even where the environment says not to: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

PYTEST := $(SLEEPING_THREADS) $(PY) -m pytest
# A file is one process's, as its tests share fixtures.
BY_FILE := --dist loadfile
# The tests of the gate wait for a third of their time: three processes keep two cores at work.
GATE := --numprocesses 3 $(BY_FILE)
SLOW := --numprocesses 2 $(BY_FILE)

.PHONY: help setup app smoke test test-slow lint format lock bench screenshots docs clean

help: ## list these targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

$(VENV)/.installed: requirements.txt requirements-dev.txt pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip  # the one that comes with Python 3.11 takes twice as long for the rest
	$(PY) -m pip install --quiet --no-compile --requirement requirements-dev.txt
	# On all cores, where pip uses one, and without what is seldom imported. Some packages ship files that are not Python.
	$(PY) -m compileall -qq -j 0 -x '$(SELDOM_IMPORTED)' $(VENV)/lib || true
	$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

setup: $(VENV)/.installed ## create .venv; fetch the default model and STSb into the home folder; compile umap-learn
	$(PY) -m scripts.fetch_embedded
	$(PY) -c "from sbert_app.services.maps import compile_umap; compile_umap()"

app: setup ## serve the app at http://127.0.0.1:7860
	$(PY) app.py

lint: $(VENV)/.installed ## ruff, mypy, import-linter, libraries used from the outside, names and docstrings
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) -m scripts.outside
	$(PY) -m scripts.check_prose

format: $(VENV)/.installed ## let ruff format and fix what it can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

test test-slow: export SBERT_HOME = $(TEST_HOME)
test: export HYPOTHESIS_PROFILE = gate
test: setup lint ## the gate: lint, then the tests in random order, then the tests in a browser
	sh scripts/find_browser.sh
	$(PYTEST) -m "not slow" $(GATE) --ignore tests/browser
	$(PYTEST) -m "not slow" $(GATE) -p no:randomly tests/browser  # in order: a file's tests share one app and its runs

test-slow: export HYPOTHESIS_PROFILE = full
test-slow: setup ## the rest: Ray, fresh environments, whole matrices, properties at full depth, audits of every page
	sh scripts/find_browser.sh
	$(PYTEST) -m "slow or hypothesis" $(SLOW) --ignore tests/browser
	$(PYTEST) -m slow $(SLOW) -p no:randomly tests/browser

smoke: setup ## compare, score, train ten steps, serve one page: what every machine has to do
	$(PY) -m scripts.smoke

lock: $(VENV)/.installed ## write requirements.lock: the exact versions in .venv
	$(PY) -m scripts.lock

bench: setup ## run every benchmark and write benchmarks/results/*.json
	$(PY) -m benchmarks

screenshots: setup ## retake assets/screenshots
	sh scripts/find_browser.sh
	$(PY) -m scripts.screenshots

docs: setup ## build the documentation as a site into .cache/site; a broken link fails
	$(PY) -m pip install --quiet --requirement requirements-docs.txt
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet

clean: ## remove .venv and caches
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
