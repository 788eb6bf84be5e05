# Every target does its own set-up. `make help` lists them.

MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.DEFAULT_GOAL := help

# $(call python,…) runs the first Python that is new enough; `make PYTHON=…` names another.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
define python
for p in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	"$$p" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && exec "$$p" $(1); \
done; echo 'No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)' >&2; exit 1
endef
BIN := build/venv/bin
LOCKER := uv==0.13.9

# Nothing from outside leaks into the environment of the project.
unexport PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONSTARTUP MYPYPATH VIRTUAL_ENV
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes; each would compile the package anew
unexport PIP_TARGET PIP_PREFIX PIP_USER PIP_REQUIRE_VIRTUALENV PIP_CONSTRAINT PYTEST_ADDOPTS

.PHONY: help venv demo test check bench bench-console chaos jaeger test-debezium lock wheel clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-13s %s\n", $$1, $$2 }'

venv: ## The virtual environment build/venv with the locked packages
	@$(call python,.ci/make_venv.py)

demo: venv ## 200 orders through real processes, three kills, and the ledgers compared (KEEP=1: then the console)
	@$(BIN)/milepost demo $(if $(KEEP),--keep)

# Three workers on two cores: many tests mostly wait. tests/support/ordering.py gives the order of the files.
test: venv ## All tests, on real servers started for them, three files at a time (TESTERS=1: one)
	@$(BIN)/python -m pytest tests -n $(or $(TESTERS),3) --dist loadfile --no-loadscope-reorder --durations=25

check: venv ## Lint, format, types and the arrows between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p milepost
	$(BIN)/mypy tests .ci/make_venv.py
	$(BIN)/lint-imports

bench: venv ## Every figure of docs/performance.md (ONLY=R1,R2: some; FULL=1: 10 M retained rows)
	@$(BIN)/python -m tests.benchmarks --only '$(ONLY)' $(if $(FULL),--full) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-console: venv ## What the console's pages take when a week has left a million runs
	@MILEPOST_CHAOS=long $(BIN)/python -m pytest -q -s tests/plans/test_console_pages.py

chaos: venv ## The tests that kill processes and servers in their long form (MILEPOST_CHAOS=short: as in make test)
	@MILEPOST_CHAOS=$(or $(MILEPOST_CHAOS),long) $(BIN)/python -m pytest tests/chaos --timeout 7200 --durations=15

test-debezium: venv ## Debezium's outbox event router on the same table, in Kafka Connect (first time: fetches both)
	@MILEPOST_DEBEZIUM=1 $(BIN)/python -m pytest tests/debezium

jaeger: venv ## The demo with traces in Jaeger, checked through its query API (first time: builds Jaeger)
	@$(BIN)/python -m milepost.examples.shop.traced

lock: ## Renew requirements.lock from pyproject.toml (UPGRADE=1: newest versions)
	@$(call python,-m venv build/locker)
	@build/locker/bin/python -m pip install -q --disable-pip-version-check '$(LOCKER)'
	@build/locker/bin/uv pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes \
		--extra dev --extra demo --extra console --extra metrics --extra agents --group test --no-annotate --custom-compile-command 'make lock' \
		$(if $(UPGRADE),--upgrade) -o requirements.lock

wheel: venv ## The wheel and the source archive in dist/
	@rm -rf dist && $(BIN)/python -m build --no-isolation -o dist . >build/wheel.log 2>&1 || { tail -n 30 build/wheel.log; exit 1; }
	@ls -1 dist

clean: ## Remove build/, dist/ and the tools' caches
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
