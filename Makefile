# Two commands. `make library` builds and verifies the kernels for the best target that this machine
# can run; `make test` is everything that has to pass before a change goes in.
#
# Both need python3 (3.11 or newer, with venv) and a package index. Everything lands in .venv and
# build/; a second run finds the set-up done.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Exactly the files whose hashes stand in a list; then our own packages, from here and with nothing else.
LOCKED := $(PIP) --require-hashes --only-binary :all: -r
OURS := $(PIP) --no-deps --no-build-isolation

# Every target is a package of its own under plugins/.
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
PROJECTS := pyproject.toml $(PLUGINS:%=%/pyproject.toml)
EDITABLE := $(PLUGINS:%=-e %)

.PHONY: library test docs clean
.DELETE_ON_ERROR:

# For example: make library ARGS="--kernels 'softmax matmul' --threads 2"
library: .venv/ready
	$(BIN)/perfdojo-sdk build-library $(ARGS)

test: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

docs: .venv/ready-dev
	$(BIN)/mkdocs build --strict --site-dir build/site

clean:
	rm -rf .venv build

.venv/ready: $(PROJECTS) requirements/run.lock requirements/zig.lock
	@$(PYTHON) -c 'import sys; sys.exit("PerfDojo SDK needs Python 3.11 or newer") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv .venv
	$(LOCKED) requirements/run.lock
	$(OURS) -e . $(EDITABLE)
	@# The wheel of zig carries a C compiler; it is large, so only who has no compiler gets it.
	@command -v gcc >/dev/null || command -v cc >/dev/null || command -v clang >/dev/null \
		|| $(LOCKED) requirements/zig.lock
	@touch $@

.venv/ready-dev: .venv/ready requirements/dev.lock constraints.txt
	$(LOCKED) requirements/dev.lock
	@# The one package whose files differ from index to index, so it has a version and no hashes.
	$(PIP) -c constraints.txt torch
	@touch $@
