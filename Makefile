# Two commands. `make library` builds and verifies the kernels for the best target that this machine
# can run; `make test` is everything that has to pass before a change goes in.
#
# Both need python3 (3.11 or newer, with venv) and a package index. Everything lands in .venv and
# build/; a second run finds the set-up done.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Whatever comes from an index is pinned, and its hash is known; our own packages are built with what is there then.
HASHED := $(PIP) --require-hashes --only-binary :all:
OWN := $(PIP) --no-deps --no-build-isolation
LOCKS := requirements

# Every target is a package of its own under plugins/.
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
PROJECTS := pyproject.toml $(PLUGINS:%=%/pyproject.toml)
EDITABLE := $(PLUGINS:%=-e %)

# What a change of the language, its moves and their proofs needs: a minute, no compiler.
CORE := dependence filters fuzz_cases history import_arrows integer_moves interpreter law_limits laws magnitudes \
	ranges modular_vm sharing sliding text transformations verify_exact

.PHONY: library test test-core docs clean
.DELETE_ON_ERROR:
# Bytecode is kept: the tests start hundreds of processes, and each would compile what it imports again.
unexport PYTHONDONTWRITEBYTECODE

# For example: make library ARGS="--kernels 'softmax matmul' --threads 2"
library: .venv/ready
	$(BIN)/perfdojo-sdk build-library $(ARGS)

test: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	@# A file's tests run in one process: they share fixtures, plugins, compiled references and much else.
	@# The order is that of tests/conftest.py: by number of tests, the longest files would start last.
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

test-core: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -q -n 2 $(CORE:%=tests/test_%.py)

docs: .venv/ready-dev
	$(BIN)/mkdocs build --strict --site-dir build/site

clean:
	rm -rf .venv build

.venv/ready: $(PROJECTS) $(wildcard $(LOCKS)/*.lock)
	@$(PYTHON) -c 'import sys; sys.exit("PerfDojo SDK needs Python 3.11 or newer") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv .venv
	$(HASHED) -r $(LOCKS)/base.lock
	@# The wheel of zig carries a C compiler; it is large, so only who has no compiler gets it.
	@command -v gcc >/dev/null || command -v cc >/dev/null || command -v clang >/dev/null || $(HASHED) -r $(LOCKS)/zig.lock
	$(OWN) -e . $(EDITABLE)
	@touch $@

.venv/ready-dev: .venv/ready
	$(HASHED) -r $(LOCKS)/base.lock -r $(LOCKS)/dev.lock
	@# PyTorch without CUDA where an index has it; the usual index has the build with CUDA only.
	$(HASHED) --no-deps -r $(LOCKS)/torch-cpu.lock 2>/dev/null || $(HASHED) --no-deps -r $(LOCKS)/torch.lock -r $(LOCKS)/torch-cuda.lock
	@touch $@
