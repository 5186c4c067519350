# make app: set up and run the app.   make test: set up and pass every check.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# Threads that wait asleep: of two processes that spin while they wait, each keeps the other from its work.
CALM := OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0

.PHONY: setup app test lint bench screenshots clean

$(VENV)/.installed: requirements.txt requirements-dev.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --requirement requirements-dev.txt
	touch $@

setup: $(VENV)/.installed ## the environment in .venv, the embedded model and data
	$(PY) -m scripts.fetch_embedded

app: setup
	$(PY) app.py

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

test: setup lint
	sh scripts/find_browser.sh
	$(CALM) $(PY) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --ignore tests/browser
	$(CALM) $(PY) -m pytest tests/browser

bench: setup
	$(PY) -m benchmarks

screenshots: setup
	sh scripts/find_browser.sh
	$(PY) -m scripts.screenshots

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
