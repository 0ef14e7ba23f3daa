# Two commands: `make demo` and `make test`. Everything they need, they install into .venv and .tox.
PYTHON ?= python3
SPARK ?= 4.3.0
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-quick test-touched types quick bench scale campaign campaign-short rolling rollbacks spark-bench spark-kills spark-matrix simulate versions histories mirror fuzz fuzz-native miri docs house pictures services site matrix lock pin-images security native-wheels release-check clean

help:
	@echo "make demo      Kafka, Spark and Iceberg on this machine, with proof"
	@echo "make test      the tests, through tox"
	@echo "make test-long  what takes too long for that: other stores, formats, versions, times of a kill (an hour)"
	@echo "make test-quick  most of what needs no services, in less than three minutes; left out are tests"
	@echo "               of packaging, fuzz, serving, iceberg, cli, neighbours, and broken rules"
	@echo "make test-touched  the tests of what differs from main (BASE=HEAD: what is not committed)"
	@echo "make bench     throughput and commit cost, with figures (RECORDS=5000000);"
	@echo "               BENCH='--only java' takes the Java sink beside it, also over 3 * RECORDS"
	@echo "make scale     one commit cycle of up to 1,000 workers, 10,000 partitions, 5,000 tables; no services"
	@echo "make campaign  faults on every backend, with figures (SECONDS=600 each);"
	@echo "               campaign-short takes ten minutes; ARGS=--maintained: with maintenance and landing"
	@echo "make rolling   workers of two versions replace each other, on every store (REPLACEMENTS=500);"
	@echo "               ARGS=--other-settings: and of other settings"
	@echo "make rollbacks another engine rolls tables back, and the command answers (ROLLBACKS=200);"
	@echo "               ENGINE=spark: that is Spark with Iceberg's procedures; replacement: whole tables"
	@echo "make spark-kills  drivers of Spark and their workers are killed while they write (KILLS=100)"
	@echo "make spark-matrix  tests of format(\"calving\") on PySpark 4.1, 4.2 and 4.3, classic and Connect,"
	@echo "               local and on a standalone cluster (ARGS=\"--session 'connect local'\")"
	@echo "make spark-bench  rows for each CPU second through calving run, format(\"calving\") and Iceberg's own"
	@echo "               sink of Spark, which is for PySpark 4.1 (ROWS=2000000)"
	@echo "make simulate  many seeds of the protocol simulation (SEEDS=5000)"
	@echo "make versions  300 seeds with members of several versions, and of several settings; and of 80"
	@echo "               seeds at least five notice each broken rule about the versions"
	@echo "make histories seeded histories of tables whose rows records change (ARGS='--seeds 200')"
	@echo "make mirror    a million records of Debezium over 100,000 keys, compared with their source;"
	@echo "               ARGS='--source partial' or 'mongo': updates that lack what did not change"
	@echo "make fuzz      random tables and records against an oracle (SECONDS=3600);"
	@echo "               SEED=7 CASE=12 repeats one case"
	@echo "make fuzz-native  random and damaged bytes for the decoders in Rust, under AddressSanitizer;"
	@echo "               make miri interprets the same, and finds undefined behaviour"
	@echo "make house     figures of the sources: lines, modules, and those that a block of records passes"
	@echo "make docs      write the generated pages again"
	@echo "make services NAMES='kafka s3'  services for the how-to guides, until Ctrl-C; also registry, spark"
	@echo "make pictures  take the pictures of the status page again; needs chromium"
	@echo "make site      build the documentation into site/; links that lead nowhere are errors"
	@echo "make lock      pin the dependencies again"
	@echo "make pin-images  write the digests of the image's base images into deploy/Dockerfile; needs docker"
	@echo "make security  look for known holes in dependencies and for dangerous calls; needs cargo-audit"
	@echo "make native-wheels  build the wheels of calving-native for Linux, x86_64 and aarch64, into dist/"
	@echo "make release-check  build all distributions into dist/, install and try them"

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet 'uv>=0.5' 'tox>=4.23' 'tox-uv>=1.16'

# PySpark comes as sources of half a gigabyte. Its wheel is made once, and every environment shares the files.
WHEELS := .cache/wheels
OLDER_SPARK := $(shell sed -n 's/^ *SPARK = //p' tox.ini)
spark_wheel = $(WHEELS)/pyspark-$(1)-py2.py3-none-any.whl
export UV_FIND_LINKS := $(CURDIR)/$(WHEELS)

$(WHEELS)/pyspark-%-py2.py3-none-any.whl: | $(BIN)/uv
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEELS) 'pyspark==$*'

PACKAGES = packages/core packages/backend-kafka packages/backend-redis packages/backend-zookeeper packages/spark

# The decoders and the reader in Rust, where there is a cargo: built once for each state of their sources. No index has them before a
# release. So without a cargo they are left out, and the exact path reads and decodes.
CARGO := $(firstword $(shell command -v cargo) $(wildcard $(HOME)/.cargo/bin/cargo))
ifneq ($(CARGO),)
NATIVE := .cache/native/$(shell cat $(sort $(wildcard packages/native/*.* packages/native/src/*)) | sha256sum | cut -c1-12)
$(NATIVE)/built: | $(BIN)/uv
	@mkdir -p $(WHEELS); PATH="$(dir $(CARGO)):$$PATH" CARGO_TARGET_DIR=$(CURDIR)/.cache/cargo \
		$(BIN)/uv build --quiet --wheel --out-dir $(NATIVE) packages/native && touch $@ || \
		{ echo "calving-native could not be built: records are read and decoded without Rust"; test -z "$$CI"; }
BUILT := $(NATIVE)/built
else
BUILT := without-rust
.PHONY: without-rust
without-rust:
	@echo "There is no cargo on this machine: records are read and decoded without Rust, with the same results, but slower."
endif
native_wheel = $$(ls $(or $(NATIVE),without-rust)/*.whl 2> /dev/null)
WITHOUT_NATIVE := $(CURDIR)/without-native.txt
tox = wheel=$(native_wheel); test -z "$$wheel" || export UV_OVERRIDE=; \
	PATH="$(CURDIR)/$(BIN):$$PATH" CALVING_NATIVE_WHEEL="$$wheel" $(1) $(BIN)/tox
native = --reinstall-package calving-native $$(ls $(or $(NATIVE),without-rust)/*.whl 2> /dev/null || echo --override $(WITHOUT_NATIVE))

$(BIN)/calving: $(BIN)/uv $(call spark_wheel,$(SPARK)) $(PACKAGES:%=%/pyproject.toml) requirements.lock without-native.txt $(if $(NATIVE),$(BUILT),| $(BUILT))
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock 'pyspark[connect]==$(SPARK)' \
		$(PACKAGES:%=-e %) $(native)
	@touch $@

demo: $(BIN)/calving
	@$(BIN)/calving demo

# Catalogs, brokers and stores of tests sync many small files. In memory that takes half of the time, if there is room.
ROOMY_KIB := 8388608
MEMORY := $(shell test "$$(df -k --output=avail /dev/shm 2> /dev/null | tail -1)" -ge $(ROOMY_KIB) 2> /dev/null && echo /dev/shm)
test test-long test-quick test-touched: export TMPDIR := $(or $(MEMORY),$(TMPDIR),/tmp)

# Two environments at once keep two cores busy. With a third the same tests take a third more CPU, for their caches are cold.
test: $(BIN)/uv without-native.txt $(BUILT)
	@$(MAKE) --no-print-directory --jobs 2 $(call spark_wheel,$(SPARK)) $(call spark_wheel,$(OLDER_SPARK))
	@$(call tox) run-parallel --parallel 2 --parallel-no-spinner

test-long: $(BIN)/calving $(call spark_wheel,$(OLDER_SPARK))
	@$(call tox) run -e long,long41

SLOWER = packaging fuzz serving iceberg cli records/test_neighbours.py
test-quick: $(BIN)/calving
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs 2 types quick

BASE ?= main
test-touched: $(BIN)/calving
	@CALVING_SEEDS=3 $(BIN)/python -m harness.touched $(BASE)

types: $(BIN)/calving
	@$(BIN)/mypy && $(BIN)/python -m harness.stubs

quick: $(BIN)/calving
	@CALVING_SEEDS=3 $(BIN)/pytest -q -n 2 -m 'not services and not long' -k 'not broken_rule and not contracts_in_the_manual' tests \
		$(SLOWER:%=--ignore tests/%)

# As a user has it: calving[kafka] and nothing else, installed and compiled as pip does it.
USER_ENV = .cache/bench
$(USER_ENV)/bin/python: $(BIN)/calving
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(USER_ENV)

RECORDS ?= 5000000
bench: $(USER_ENV)/bin/python
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(USER_ENV)/bin/python --constraint requirements.lock \
		--no-sources --reinstall-package calving --reinstall-package calving-kafka \
		'pyspark==$(SPARK)' packages/core packages/backend-kafka $(native)
	@$(BIN)/python -m bench.run --records $(RECORDS) --calving $(USER_ENV)/bin/calving $(BENCH)

scale: $(BIN)/calving
	@nice $(BIN)/python -m bench.scale

SECONDS ?= 600
campaign: $(BIN)/calving
	@$(BIN)/python -m campaign.run --seconds $(SECONDS) $(ARGS)

campaign-short: $(BIN)/calving
	@$(BIN)/python -m campaign.run --seconds 150 --tables 20

REPLACEMENTS ?= 500
rolling: $(BIN)/calving
	@nice $(BIN)/python -m campaign.rolling --replacements $(REPLACEMENTS) $(ARGS)

# Iceberg's runtime is of an older Spark than the sink's.
ROLLBACKS ?= 200
ENGINE ?= catalog
rollbacks: $(BIN)/calving $(if $(filter spark,$(ENGINE)),$(call spark_wheel,$(OLDER_SPARK)))
	@$(if $(filter spark,$(ENGINE)),$(call tox,nice) exec -qq -e spark41 -- python,nice $(BIN)/python) \
		-m campaign.rollbacks --engine $(ENGINE) --rollbacks $(ROLLBACKS) $(ARGS)

KILLS ?= 100
spark-kills: $(BIN)/calving
	@nice $(BIN)/python -m campaign.spark_writes --kills $(KILLS) $(ARGS)

MATRIX := 41 42 43
matrix_sparks := $(shell sed -n 's/^ *matrix4.: SPARK = //p' tox.ini)
spark-matrix: $(BIN)/calving $(foreach version,$(matrix_sparks),$(call spark_wheel,$(version)))
	@rm -f campaign-results/spark-matrix-*.json
	@for version in $(MATRIX); do $(call tox,nice) run -qq -e matrix$$version -- $(ARGS) || failed=1; done; \
		$(BIN)/python -m tests.spark.matrix --show; test -z "$$failed"

ROWS ?= 2000000
spark-bench: $(USER_ENV)/bin/python $(call spark_wheel,$(OLDER_SPARK))
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(USER_ENV)/bin/python --constraint requirements.lock \
		--no-sources --reinstall-package calving --reinstall-package calving-kafka \
		'pyspark==$(SPARK)' packages/core packages/backend-kafka $(native)
	@$(call tox) run -qq -e spark41 --notest
	@$(BIN)/python -m bench.spark_writes --records $(ROWS) --calving $(USER_ENV)/bin/calving \
		--older .tox/spark41/bin/python $(ARGS)

SEEDS ?= 5000
simulate: $(BIN)/calving
	@$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(ARGS)

versions: $(BIN)/calving
	@CALVING_SEEDS=300 CALVING_ENOUGH=5 $(BIN)/python -m pytest -q tests/simulation/test_simulation.py -k "several or F1 or F2 or S1 or S2"

histories: $(BIN)/calving
	@nice $(BIN)/python -m tests.mutations.histories $(filter-out --spark,$(ARGS))
	@nice $(BIN)/python -m tests.mutations.lifetimes $(filter-out --spark,$(ARGS))
	@nice $(BIN)/python -m tests.iceberg.acceptance $(ARGS)

mirror: $(BIN)/calving
	@nice $(BIN)/python -m bench.mirror $(ARGS)

fuzz: SECONDS = 3600
fuzz: $(BIN)/calving
	@$(if $(CASE),:,nice $(BIN)/python -m tests.fuzz.run_blocks --seconds $$(($(SECONDS) / 10)) $(if $(SEED),--seed $(SEED)))
	@nice $(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(CASE),--case $(CASE)) \
		$(if $(LONG),--long) $(if $(ONLY),--records $(ONLY))
ifndef CASE
	@nice $(BIN)/python -m tests.fuzz.run --long --seconds $$(($(SECONDS) / 2)) $(if $(SEED),--seed $(SEED))
	@nice $(BIN)/python -m tests.fuzz.run --version-3 --seconds $$(($(SECONDS) / 4)) $(if $(SEED),--seed $(SEED))
	@nice $(BIN)/python -m tests.fuzz.alone --seconds $$(($(SECONDS) / 4)) $(if $(SEED),--seed $(SEED))
	@nice $(BIN)/python -m tests.fuzz.changes --seconds $$(($(SECONDS) / 8)) $(if $(SEED),--seed $(SEED))
	@nice $(BIN)/python -m tests.fuzz.changes --version-3 --seconds $$(($(SECONDS) / 8)) $(if $(SEED),--seed $(SEED))
	@nice $(BIN)/python -m tests.fuzz.newcomers --seconds $$(($(SECONDS) / 8)) $(if $(SEED),--seed $(SEED))
	@nice $(BIN)/python -m tests.fuzz.work --seconds $$(($(SECONDS) / 4))
	@nice $(BIN)/python -m tests.fuzz.hostile --seconds $$(($(SECONDS) / 8)) $(if $(SEED),--seed $(SEED))
endif

# The stable compiler has the sanitizer, and takes the option if it is told that it may. With a target, build scripts go without.
fuzz-native: SECONDS = 600
fuzz-native:
	@cd packages/native/fuzz && RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$(CURDIR)/.cache/fuzz \
		nice $(CARGO) run --quiet --locked --release --target $(shell uname -m)-unknown-linux-gnu -- $(SECONDS) $(SEED)

# Miri comes with Rust's nightly toolchain: rustup toolchain install nightly --component miri,rust-src
miri: SECONDS = 600
miri:
	@cd packages/native/fuzz && MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=$(CURDIR)/.cache/miri \
		nice $(CARGO) +nightly miri run --quiet --locked -- $(SECONDS) $(SEED)

house: $(BIN)/calving
	@$(BIN)/python -m tools.house

docs: $(BIN)/calving
	@$(BIN)/python -m harness.generate_docs

NAMES ?= kafka
services: $(BIN)/calving
	@$(BIN)/python -m harness.services $(NAMES)

pictures: $(BIN)/calving
	@CALVING_PICTURES=1 $(BIN)/python -m pytest -q tests/serving/test_page.py

# MkDocs has an environment of its own: the sink needs none of it.
SITE_ENV := .cache/site
$(SITE_ENV)/bin/mkdocs: docs/requirements.txt | $(BIN)/uv
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SITE_ENV)
	@$(BIN)/uv pip install --quiet --python $(SITE_ENV)/bin/python -r docs/requirements.txt
	@touch $@

site: $(SITE_ENV)/bin/mkdocs
	@NO_MKDOCS_2_WARNING=1 $(SITE_ENV)/bin/mkdocs build --strict
	@echo "site/index.html"

matrix: $(BIN)/calving
	@$(BIN)/python -m harness.generate_matrix

lock: $(BIN)/uv
	@$(BIN)/uv pip compile --quiet --upgrade --universal --no-emit-index-url --no-annotate --no-header --generate-hashes \
		--python-version 3.11 requirements.in $(PACKAGES:%=%/pyproject.toml) \
		--override $(WITHOUT_NATIVE) --no-emit-package calving --no-emit-package calving-kafka --no-emit-package calving-redis \
		--no-emit-package calving-spark --no-emit-package calving-zookeeper --no-emit-package pyspark --no-emit-package py4j \
		-o requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade --universal --no-emit-index-url --no-annotate --no-header --generate-hashes \
		--python-version 3.11 docs/requirements.in -o docs/requirements.txt
	@printf 'uv==0.13.9\n' | env -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --universal --no-deps --no-emit-index-url \
		--no-annotate --no-header --generate-hashes --python-version 3.11 - -o deploy/uv.txt
	@printf 'pyspark==$(SPARK)\npy4j\n' | env -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --upgrade --universal --no-deps \
		--no-emit-index-url --no-annotate --no-header --generate-hashes --python-version 3.11 - -o deploy/pyspark.txt

# The digests come from the images' registries.
pin-images: $(BIN)/uv
	@$(BIN)/python -m harness.pin_images

# The advisories come over the network: those of PyPI, and those of RustSec, for which cargo-audit has to be installed.
security: $(BIN)/calving
	@$(BIN)/ruff check .
	@$(BIN)/pytest -q tests/unit/test_supply.py
	@for crate in packages/native packages/native/fuzz; do PATH="$(dir $(CARGO)):$$PATH" \
		CARGO_TARGET_DIR=$(CURDIR)/.cache/cargo cargo clippy --locked --quiet --manifest-path $$crate/Cargo.toml || exit 1; done
	@PATH="$(dir $(CARGO)):$$PATH" $(BIN)/python -m harness.audit

# For glibc 2.28 and newer, on each machine for both. Zig links, because its libc has any version of glibc for any machine.
# Rust has to have the targets: rustup target add x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
MACHINES ?= x86_64 aarch64
ZIG_ENV := .cache/zig
$(ZIG_ENV)/bin/maturin: | $(BIN)/uv
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(ZIG_ENV)
	@$(BIN)/uv pip install --quiet --python $(ZIG_ENV)/bin/python 'maturin>=1.9,<2' ziglang

native-wheels: $(ZIG_ENV)/bin/maturin
	@for machine in $(MACHINES); do PATH="$(CURDIR)/$(ZIG_ENV)/bin:$(dir $(CARGO)):$$PATH" CARGO_TARGET_DIR=$(CURDIR)/.cache/cargo \
		maturin build --quiet --release --locked --zig --target $$machine-unknown-linux-gnu --compatibility manylinux_2_28 \
		--manifest-path packages/native/Cargo.toml --out dist || exit 1; done

# Wheels and sources of all distributions, as they would be uploaded.
release-check: $(BIN)/calving
	@rm -rf dist
	@export PATH="$(dir $(CARGO)):$$PATH" CARGO_TARGET_DIR="$(CURDIR)/.cache/cargo"; \
		for package in $(PACKAGES) $(if $(CARGO),packages/native); do \
		$(BIN)/uv build --quiet --out-dir dist $$package || exit 1; done
	@$(BIN)/uv tool run --quiet twine check --strict dist/*
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -q tests/packaging

clean:
	rm -rf .venv .tox .cache .calving-demo site bench-results campaign-results fuzz-results
