# make app: install the app and run it.   make test: install the rest and pass the checks.   make help: all targets.
PYTHON ?= python3
# What is tested is what is installed. `make test TESTED=` takes the newest version of every range.
TESTED ?= --constraint requirements.lock
VENV := .venv
PY := $(VENV)/bin/python
# The tests' home folder: never the user's own. It is kept, so that the model and the data are fetched once.
TEST_HOME ?= $(CURDIR)/.cache/home
# Threads sleep while they wait: of two processes that spin, each keeps the other from its work.
SLEEPING_THREADS := OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
# On all cores, where pip uses one, and without what is seldom imported. Some packages ship files that are not Python.
COMPILE = $(PY) -m compileall -qq -j 0 -x '$(SELDOM_IMPORTED)' $(VENV)/lib || true
SELDOM_IMPORTED := /tests/|/transformers/models/|/(ray|plotly|sympy|openai|mteb|pip|setuptools|networkx|pygments|mypy|polars)/
# Compiled modules are kept, even where the environment says not to: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

# The default model and STSb in the home folder, and umap-learn compiled.
define PREPARE
$(PY) -m scripts.fetch_embedded
$(PY) -c "from sbert_app.services.maps.projection import compile_umap; compile_umap()"
endef

PYTEST := $(SLEEPING_THREADS) $(PY) -m pytest
# A file is one process's, as its tests share fixtures.
BY_FILE := --dist loadfile
# These tests wait for a third of their time: three processes keep two cores at work. Those on Ray start processes of their own.
GATE := --numprocesses 3 $(BY_FILE)
SLOW := --numprocesses 2 $(BY_FILE)

.PHONY: help setup app smoke test test-slow lint format lock bench screenshots docs clean

help: ## list these targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

# The packages of the app, and on top of them those of the checks.
$(VENV)/.app: requirements.txt requirements.lock pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	# The pip that comes with Python 3.11 takes twice as long for the rest.
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --no-compile --requirement requirements.txt $(TESTED)
	$(COMPILE)
	$(PY) -m pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/.installed: $(VENV)/.app requirements-dev.txt
	$(PY) -m pip install --quiet --no-compile --requirement requirements-dev.txt $(TESTED)
	$(COMPILE)
	touch $@

setup: $(VENV)/.installed ## install what the checks need (2.9 GB, about 7.5 GB with CUDA), the default model and STSb
	$(PREPARE)

app: $(VENV)/.app ## install the app (1.9 GB with PyTorch for the CPU, about 6.5 GB with CUDA) and serve it at http://127.0.0.1:7860
	$(PREPARE)
	$(PY) app.py

lint: $(VENV)/.installed ## ruff, mypy, import-linter, libraries used from the outside, names and docstrings, the volume in tokens
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) -m scripts.outside
	$(PY) -m scripts.check_prose
	$(PY) -m scripts.volume

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
	$(PYTEST) -m slow $(GATE) -p no:randomly tests/browser

smoke: $(VENV)/.app ## compare, score, train ten steps, serve one page: what every machine has to do
	$(PREPARE)
	$(PY) -m scripts.smoke

lock: $(VENV)/.installed ## write requirements.lock: the exact versions in .venv
	$(PY) -m scripts.lock

bench: setup ## run every benchmark and write benchmarks/results/*.json
	$(PY) -m benchmarks

screenshots: setup ## retake assets/screenshots
	sh scripts/find_browser.sh
	$(PY) -m scripts.screenshots

docs: $(VENV)/.app ## build the documentation as a site into .cache/site; a broken link fails
	$(PY) -m pip install --quiet --requirement requirements-docs.txt
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet

clean: ## remove .venv and caches
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
