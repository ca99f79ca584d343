# Set-up happens by itself: one virtual environment, filled once. What must be there: cargo, python3 (3.10 or newer), make.
#
#   make demo    trains a network on a data set on disk, kills the training, goes on
#   make test    Rust and Python tests (TORCH=2.11.0: with that release of torch)
#   make check   formatting, lints, types, the generated stub, the architecture
#   make bench   timings (REFERENCE=DIR compares with the package that is installed in DIR)
#   make wheel   the wheel, in dist/
#   make stubs   writes python/tensordict/_core.pyi again
#   make format  formats Rust and Python
#   make sanitize  runs tests with the address sanitizer

PYTHON ?= python3
# A release of torch other than the newest has an environment of its own: make test TORCH=2.11.0
TORCH ?=
VENV ?= .venv$(TORCH:%=-torch%)
REFERENCE ?=
PYTEST ?= -n auto

BIN := $(abspath $(VENV))/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Without it PyO3 would look for an interpreter itself, and be built again whenever it finds another one.
export PYO3_PYTHON := $(BIN)/python

SOURCES := Cargo.toml Cargo.lock pyproject.toml \
	$(shell find rust/core/src rust/core/Cargo.toml rust/python python -type f \
		\( -name '*.rs' -o -name '*.toml' -o -name '*.py' -o -name '*.pyi' -o -name 'py.typed' \))

.PHONY: demo test test-rust test-python check bench wheel stubs format sanitize clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	$(BIN)/python examples/train_digits.py --out build/digits

test: test-rust test-python

test-rust: | $(VENV)/.made
	if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --locked -p tensordict-core && cargo test --locked -p tensordict-core --doc; \
	else \
		cargo test --locked -p tensordict-core; \
	fi

# The tests import the installed wheel: nothing puts python/ on the path.
test-python: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST)

check: $(VENV)/.dev $(VENV)/.test
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python tools/stubs.py --check
	$(BIN)/python -m pytest tests/test_architecture.py

bench: $(VENV)/.package
	cargo bench --locked -p tensordict-core
	$(BIN)/python benches/python/run.py $(if $(REFERENCE),--reference $(REFERENCE))

wheel: dist/.built

stubs: $(VENV)/.dev
	$(BIN)/python tools/stubs.py

format: $(VENV)/.dev
	cargo fmt --all
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

sanitize: $(VENV)/.test
	PYTHON=$(BIN)/python tools/sanitize.sh

clean:
	rm -rf .venv .venv-torch* build dist target

# Each stamp stands for a finished step. A wheel of the same version is not installed again unless forced.
$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	touch $@

dist/.built: $(SOURCES) | $(VENV)/.made
	rm -rf dist
	$(PIP) wheel --quiet --no-deps --wheel-dir dist .
	touch $@

$(VENV)/.package: dist/.built
	$(PIP) install --quiet --no-deps --force-reinstall dist/*.whl
	$(PIP) install --quiet dist/*.whl $(TORCH:%=torch==%)
	touch $@

$(VENV)/.demo $(VENV)/.test $(VENV)/.dev: $(VENV)/.%: $(VENV)/.package pyproject.toml
	$(PIP) install --quiet "$$(echo dist/*.whl)[$*]" $(TORCH:%=torch==%)
	touch $@
