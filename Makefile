# `make` lists the commands. Settings: PYTHON=python3.13 VENV=.venv PYTHONS="python3.12 python3.13t" TOUR="--quick"
# PYTEST="tests/test_pile_view.py -k survives" FUZZ_SECONDS=300 PREFIX=$HOME/.local CHECKED=1
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help
# Scripts are run by the name of what reads them: source packages do not keep that a file may be run.

VENV ?= .venv
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR

supported = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
newest_first := python3.14 python3.13 python3.12 python3.11
# A name on PATH may be a version manager's shim that only prints an error, so each is asked.
answers = $(shell for p in $(1); do if "$$p" -c '$(supported)' >/dev/null 2>&1; then echo "$$p"; fi; done)
PYTHON ?= $(firstword $(call answers,python3 $(newest_first)))
PYTHONS ?= $(call answers,$(newest_first) python3.14t python3.13t)

bin := $(abspath $(VENV))/bin
python := $(bin)/python
pip := $(python) -m pip --quiet --disable-pip-version-check install
locked_install := $(pip) --no-deps --require-hashes
export PYO3_PYTHON := $(python)
maturin := VIRTUAL_ENV=$(abspath $(VENV)) $(bin)/maturin
sources := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock pyproject.toml

# Where the environment has NASM, builds find it, behind all that the system has.
wheel $(VENV)/.extension lint-rust test-rust test-all-pythons long fuzz: export PATH := $(PATH):$(bin)

##@ Use it
.PHONY: tour
tour: $(VENV)/.extension  ## a live tour on a real table; writes gabion-tour.html (TOUR="--records FILE …" adds options)
	@$(bin)/gabion tour $(TOUR)

.PHONY: wheel
wheel: $(VENV)/.build  ## build a wheel into dist/ and prove that it installs without Rust
	rm -f dist/*.whl && $(maturin) build --release --locked --strip --interpreter $(python) --out dist
	bash scripts/check-wheel $(python) dist/gabion-*.whl

.PHONY: sdist
sdist: $(VENV)/.build  ## pack the sources into dist/ and prove that nothing is missing
	rm -f dist/*.tar.gz && $(maturin) sdist --out dist
	bash scripts/check-sdist $(python) dist/gabion-*.tar.gz

c_libraries := $(CARGO_TARGET_DIR)/c$(addprefix -,$(notdir $(CARGO_BUILD_TARGET)))
checked := $(filter-out 0,$(CHECKED))
prefix_said = test -n "$(PREFIX)" || { echo "say where: make $@ PREFIX=$$HOME/.local" >&2; exit 2; }

.PHONY: build-c
build-c:  ## build the libraries for C and C++ that install-c installs (CHECKED=1: the checked ones as well)
	bash scripts/build-c $(c_libraries)

# Whoever installs may be another than who has built, and have no cargo: what is newer than the sources is taken as it is.
.PHONY: install-c
install-c:  ## install gabion.h, gabion.hpp and the libraries below PREFIX, for pkg-config and CMake
	@$(prefix_said)
	@$(MAKE) --silent $(c_libraries)/$(if $(checked),checked/)libgabion_c.a
	bash scripts/install-c "$(PREFIX)" $(c_libraries)

$(c_libraries)/libgabion_c.a $(c_libraries)/checked/libgabion_c.a: $(sources)
	bash scripts/build-c $(c_libraries)

.PHONY: uninstall-c
uninstall-c:  ## take away what install-c has put below PREFIX
	@$(prefix_said)
	bash scripts/install-c --uninstall "$(PREFIX)"

##@ Check it
# What does not need all processors is done beside something else: the end of building the extension, and the Python tests.
.PHONY: test
test: $(VENV)/.tools  ## every check: formatting, lints, types, docs, Rust tests, Python tests
	$(call beside,lint-rust,$(VENV)/.extension $(VENV)/.check)
	$(MAKE) lint-python
	$(call beside,test-rust test-loom,test-python)

# Makes the two side by side, the first with what the second leaves of the processors: there is time in some Python
# tests. Both come to their end, and either may fail. A shell has what it starts with & ignore Ctrl-C: it would run on.
beside = (trap - INT QUIT; exec nice $(MAKE) $(1)) & first=$$!; \
  failed=0; $(MAKE) $(2) || failed=$$?; wait $$first || failed=$$?; exit $$failed

.PHONY: lint
lint: lint-rust lint-python  ## formatting, lints, types and documentation links

# The fuzz targets are looked at where the rest just was: most of what they depend on is compiled by then. The extension is compiled
# once more as for a free-threaded Python, whose own functions are others; that takes no such interpreter.
.PHONY: lint-rust
lint-rust: $(VENV)/.nasm  ## the part of lint for Rust
	cargo fmt --all --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	cargo clippy --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target) \
		--no-default-features --bins -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --no-deps --document-private-items
	PYO3_CONFIG_FILE=$(abspath crates/gabion-python/free-threaded.cfg) \
		cargo clippy --quiet --locked -p gabion-python -- -D warnings

.PHONY: lint-python
lint-python: $(VENV)/.extension $(VENV)/.check  ## the part of lint for Python
	$(bin)/ruff check --quiet .
	$(bin)/ruff format --quiet --check .
	$(bin)/mypy
	$(bin)/stubtest gabion._native --allowlist tests/stubtest_allowed.txt --ignore-unused-allowlist

# The same cases at every run; `make long`, and cargo by hand, draw new ones.
test-rust: export GABION_SEED ?= 88172645463325252
test-rust: export PROPTEST_RNG_SEED ?= 88172645463325252

# Checks at every free keep the fast paths of slots from running, so slots are tested once more without. JPEG has another way
# where there is no NASM. The benchmark of caches has no tests, and peers that take long to build.
.PHONY: test-rust
test-rust: $(VENV)/.nasm  ## the Rust tests
	cargo test --quiet --locked $(tested)
	$(quickly_built) cargo test --quiet --locked --release -p gabion-slots --lib --test stress --test fork
	GABION_JPEG_SIMD=off cargo test --quiet --locked -p gabion-image --lib

.PHONY: test-loom
test-loom:  ## the Rust tests of all interleavings of threads
	$(quickly_built) $(loom)

.PHONY: test-python
test-python: $(VENV)/.extension $(VENV)/.check  ## the Python tests (PYTEST="FILE -k NAME" takes some of them)
	$(python) -m pytest $(PYTEST)

tested = --workspace --exclude gabion-python --exclude gabion-bench-cache

# Building these takes longer than running them.
quickly_built = CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

# A target folder of its own, because the flag would make cargo build everything anew, twice at every change of side.
loom = RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/loom \
	cargo test --quiet --locked --release -p gabion-blocks -p gabion-slots -p gabion-pile -p gabion-cache --test loom

.PHONY: test-all-pythons
test-all-pythons: $(VENV)/.build  ## the Python tests in every interpreter at hand (PYTHONS="…" names them)
	@for p in $(PYTHONS); do MATURIN=$(bin)/maturin bash scripts/test-in "$$p"; done

.PHONY: test-backends
test-backends: $(VENV)/.extension  ## the tests that Django, dogpile.cache and aiocache have for caches, on gabion.backends
	bash scripts/test-backends $(python)

.PHONY: long
long: $(VENV)/.extension $(VENV)/.check  ## long campaigns: more property cases, deeper interleavings, stress
	PROPTEST_CASES=20000 GABION_KILLS=3000 cargo test --quiet --locked --release $(tested)
	LOOM_MAX_PREEMPTIONS=4 $(loom)
	GABION_LONG=1 $(python) -m pytest -m "long or not long" --timeout 3600

.PHONY: fuzz
fuzz: $(VENV)/.nasm  ## fuzz piles, their files, the codec, keys, streams and pictures, FUZZ_SECONDS=300 each (needs nightly Rust and cargo-fuzz)
	bash scripts/fuzz $(python) $(or $(FUZZ_SECONDS),300)

# As the compiler says it: what a version knows is more than the library that comes with it.
.PHONY: oldest-rust
oldest-rust: $(VENV)/.python  ## compile all with the oldest Rust that will do (needs rustup toolchain install 1.88)
	cargo +$(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) check --locked --workspace --all-targets

.PHONY: other-targets
other-targets:  ## compile for other processors and C libraries (needs rustup target add …, as it says)
	bash scripts/check-targets

.PHONY: sanitize
sanitize:  ## tests of threads under ThreadSanitizer (needs rustup toolchain install nightly --component rust-src,miri)
	bash scripts/sanitize

.PHONY: miri
miri:  ## tests of addresses and copies in Miri, which knows the language's rules (needs the same)
	bash scripts/miri

##@ Measure it
.PHONY: bench-setup
bench-setup: $(VENV)/.bench  ## install the peers that gabion is measured against

.PHONY: bench
bench: $(VENV)/.extension $(VENV)/.bench  ## run every benchmark; writes docs/benchmarks/*.md and pictures
	$(python) bench/run.py --all --report docs/benchmarks

##@ Keep house
.PHONY: format
format: $(VENV)/.check  ## format the sources and mend what the lints can mend
	cargo fmt --all
	$(bin)/ruff check --quiet --fix .
	$(bin)/ruff format --quiet .

.PHONY: lock
lock: $(VENV)/.check  ## renew requirements/*.lock from pyproject.toml
	bash scripts/lock $(bin)/uv

.PHONY: licences
licences:  ## renew THIRD-PARTY-LICENSES.txt from Cargo.lock
	$(PYTHON) scripts/third_party.py

.PHONY: clean
clean:  ## remove everything that the commands above have made
	@# A target folder or an environment outside the checkout is other projects', too.
	$(if $(filter $(CURDIR)/%,$(abspath $(CARGO_TARGET_DIR))),rm -rf $(CARGO_TARGET_DIR),cargo clean --workspace)
	rm -rf $(if $(filter $(CURDIR)/%,$(abspath $(VENV))),$(VENV)) .venv-* dist gabion-tour.html python/gabion/*.so
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis fuzz/target

.PHONY: help
help:
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The environment: each file below is made when its step is done, and newer inputs make it again.
# An environment of another Python than the one that is asked for would be tested in its place.
ifneq ($(if $(filter-out clean help,$(MAKECMDGOALS)),$(filter command line environment,$(origin PYTHON))),)
ifneq ($(wildcard $(VENV)/.python),)
version = $(shell $(1) -c 'import sys; print(sys.version)' 2>/dev/null)
ifneq ($(call version,$(PYTHON)),$(call version,$(python)))
$(error $(VENV) is of another Python than $(PYTHON): pass VENV=.venv-other as well, or remove $(VENV))
endif
endif
endif

$(VENV)/.python:
	@$(if $(PYTHON),,echo "gabion needs Python 3.11 to 3.14, and no such python3 is on PATH; name one: make PYTHON=/path/to/python3.12" >&2; exit 1)
	@$(PYTHON) -c '$(supported)' || { echo "gabion needs Python 3.11 to 3.14; $(PYTHON) is $$($(PYTHON) -V 2>&1)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What was built without NASM is built anew with it: cargo does not see that there is one now.
$(VENV)/.nasm: scripts/nasm $(VENV)/.python
	@bash $< $(bin)
	@if [[ -x $(bin)/nasm ]]; then \
	  find $(CARGO_TARGET_DIR) fuzz/target -depth -name 'mozjpeg-sys-*' -exec rm -rf {} + 2>/dev/null || true; fi
	@touch $@

$(VENV)/.build: requirements/build.lock $(VENV)/.python $(VENV)/.nasm
	$(locked_install) -r $<
	@touch $@

$(VENV)/.tools: requirements/tour.lock $(VENV)/.build
	$(locked_install) -r $<
	@touch $@

$(VENV)/.check: requirements/check.lock $(VENV)/.tools
	$(locked_install) -r $<
	@touch $@

$(VENV)/.bench: bench/requirements.lock $(VENV)/.tools
	$(pip) -r $<
	@touch $@

$(VENV)/.extension: $(sources) $(VENV)/.tools
	@command -v cargo >/dev/null || { echo "gabion needs Rust 1.88 or newer to be built: https://rustup.rs" >&2; exit 1; }
	$(maturin) develop --release --locked
	@touch $@
