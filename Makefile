# On a machine with python3 (3.11 or later) and make: `make` reproduces Table 1, `make test` tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
# Two processes with one BLAS thread each: more threads than cores make small products crawl.
# Each takes one half of the files, so that few kernels are compiled twice, and helps the other at
# the end. Bytecode is kept even where the environment says not to: collecting without it takes
# every process of every stage half a dozen seconds.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	$(BIN)/python -m pytest -n 2 --dist worksteal
# Small programs of JAX take longer to optimize, and to fuse, than to run.
HASTY := JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS=--xla_cpu_use_fusion_emitters=false

.PHONY: table1 test test-more test-wheel lint test-extras bench torture docs networks site clean

table1: $(VENV)/flattest
	$(BIN)/flattest table1

# Where rounding may depend on JAX's optimizer, `test-more` runs tests again as users have it; it
# also runs what is slow.
test: $(VENV)/test
	$(HASTY) $(PYTEST) -m "not slow"

test-more: $(VENV)/test
	$(PYTEST) -m "slow or rounding"

RESOLUTIONS ?= highest lowest-direct
WHEEL_PYTHON ?= $(BIN)/python
# A fresh environment with nothing but the wheel, in empty folders: with the newest versions of the
# dependencies, then with the oldest that pyproject.toml allows. Last Jupyter, for the notebook.
test-wheel: $(VENV)/test
	$(PIP) build uv
	rm -rf build/wheel && $(BIN)/python -m build --quiet --outdir build/wheel .
	for resolution in $(RESOLUTIONS); do \
		$(BIN)/uv venv --quiet --clear --python $(WHEEL_PYTHON) build/fresh && \
		$(BIN)/uv pip compile --quiet --no-header --python build/fresh/bin/python --resolution $$resolution \
			pyproject.toml --output-file build/$$resolution.txt && \
		$(BIN)/uv pip install --quiet --python build/fresh/bin/python --requirement build/$$resolution.txt && \
		$(BIN)/uv pip install --quiet --python build/fresh/bin/python --no-deps build/wheel/*.whl && \
		FLATTEST_FRESH=$$PWD/build/fresh/bin/python $(PYTEST) tests/test_wheel.py -m "not jupyter" && \
		$(BIN)/uv pip install --quiet --python build/fresh/bin/python nbclient ipykernel && \
		FLATTEST_FRESH=$$PWD/build/fresh/bin/python $(PYTEST) -n 0 tests/test_wheel.py -m jupyter || exit 1; \
	done

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The tests that `make test` skips where an extra or a browser is missing; here a skip is a failure.
test-extras: $(VENV)/extras
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	FLATTEST_NO_SKIPS=1 $(PYTEST) -m "peer or browser"

bench: $(VENV)/extras
	$(BIN)/flattest bench

# Kills, full disks, flipped bits, clocks, fuzzed commands, specs and calls; at most half an hour.
torture: $(VENV)/test
	$(BIN)/python torture/torture.py --write

docs: $(VENV)/flattest
	$(BIN)/flattest verify --write docs/claims.md
	$(BIN)/python docs/tables.py

# The table of networks that are measured, with the extra 'peers'.
networks: $(VENV)/flattest
	PYTHONPATH=tests $(BIN)/python -W ignore -m support.real_networks

# The documentation, which opens from disk: out/site/index.html. A warning is an error.
site: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python docs/site/check.py out/site

clean:
	rm -rf $(VENV) out

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "flattest needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/flattest: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	touch $@

$(VENV)/docs: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[docs]'
	touch $@ $(VENV)/flattest

$(VENV)/test: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test]'
	touch $@ $(VENV)/flattest

# One version of PyTorch, a CPU build: the package's range alone would take the newest one, with CUDA. BackPACK and
# PyHessian ask for torchvision, which they do not use; it has no CPU build, and a broken one breaks transformers.
$(VENV)/extras: pyproject.toml | $(BIN)/python
	$(PIP) torch==2.13.0 --editable '.[test,peers,browser]'
	$(BIN)/pip uninstall --quiet --yes torchvision
	touch $@ $(VENV)/test $(VENV)/flattest
