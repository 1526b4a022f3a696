# Two commands matter: `make demo` and `make test`. Each sets up all that it needs.
.PHONY: demo test e2e e2e-ci lint unit integration oldest-spark lock sbom clean

VENV := .venv
BIN := $(VENV)/bin
REPORT ?= demo-report
OLDEST_SPARK := 4.2.0
TOOLS := .venv-tools/bin
LOCK := $(TOOLS)/uv pip compile --quiet --no-config --universal --python-version 3.11 --constraint constraints.txt \
  --generate-hashes --no-header --no-annotate --no-emit-index-url

demo: $(VENV)/.ready
	@$(BIN)/python examples/01-flights/demo.py --report $(REPORT)

# Files side by side, the long ones first: on two cores Spark's tests wait for much else than these.
test: lint $(VENV)/spark.jsa
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
	  tests/integration tests/simulation tests/unit operator runtime/balancedstream

# On the cluster of KUBECONFIG, on kind where Docker runs, or on tests/cluster where root and Go are.
e2e: $(VENV)/.ready
	@$(BIN)/python -m pytest -m e2e tests/e2e tests/chart

e2e-ci: $(VENV)/.ready
	@$(BIN)/python -m pytest -m "e2e_ci or e2e_ci_turn" --turns 2 tests/e2e tests/chart

lint: $(VENV)/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# What `pytest` alone runs (testpaths in pyproject.toml); about 1 minute on two cores.
unit: $(VENV)/.ready
	@$(BIN)/python -m pytest -n 2 --dist worksteal

integration: $(VENV)/spark.jsa
	@$(BIN)/python -m pytest tests/integration

# The oldest Spark that is supported, in an environment of its own: the engine's tests, and one of each feature.
oldest-spark: $(VENV)/.ready
	@$(BIN)/python -m venv .venv-oldest
	@sed 's/^pyspark==.*/pyspark==$(OLDEST_SPARK)/' constraints.txt > .venv-oldest/constraints.txt
	@.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-oldest/constraints.txt -e '.[dev,e2e,examples,kubernetes,operator]'
	@.venv-oldest/bin/python -m pytest -n 2 --dist loadfile tests/integration/test_engine.py \
	  tests/integration/test_keyed_moves.py::test_a_key_moves_with_its_whole_state_and_no_other_key_changes_its_partition \
	  tests/integration/test_keyed_refusals.py::test_a_checkpoint_that_is_not_mounted_is_refused_before_there_is_any_data \
	  tests/integration/test_aggregate.py::test_every_batch_gives_what_a_recomputation_gives_also_moved_and_restarted \
	  tests/integration/test_shuffle.py::test_rows_of_every_type_come_out_as_they_went_in \
	  tests/integration/test_shuffle_streams.py::test_a_stream_is_learnt_from_batch_to_batch_and_a_failed_batch_is_routed_as_before

# What the images contain, with hashes; after a change of pyproject.toml or constraints.txt.
lock: .venv-tools/.ready
	@$(LOCK) --extra operator --output-file docker/locks/operator.txt pyproject.toml
	@$(LOCK) --extra kubernetes --output-file docker/locks/spark.txt pyproject.toml
	@$(LOCK) --output-file docker/locks/build.txt docker/locks/build.in
	@$(LOCK) --output-file docker/locks/tools.txt docker/locks/tools.in

# The Python packages of each image as CycloneDX, from the locks.
sbom: .venv-tools/.ready
	@for image in operator spark; do \
	  $(TOOLS)/cyclonedx-py requirements --output-reproducible --output-file sbom-$$image.cdx.json docker/locks/$$image.txt; \
	done

.venv-tools/.ready: docker/locks/tools.txt $(VENV)/.ready
	@$(BIN)/python -m venv .venv-tools
	@$(TOOLS)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docker/locks/tools.txt
	@touch $@

$(VENV)/.ready: pyproject.toml constraints.txt
	@set -eu; \
	for candidate in "$${PYTHON:-}" python3 python3.13 python3.12 python3.11; do \
	  if [ -n "$$candidate" ] && "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    found=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	  echo "BalancedStream needs Python 3.11 or newer (Spark 4.3 does). Install it, or name it: make PYTHON=/path/to/python3.11 demo" >&2; exit 1; \
	fi; \
	"$$found" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,e2e,examples,kubernetes,operator]'
	@touch $@

# Java lets an archive for other jars alone, so tests only take longer where this one is of no use.
$(VENV)/spark.jsa: $(VENV)/.ready docker/archive_classes.py
	@$(BIN)/python docker/archive_classes.py $@ >$@.log 2>&1 || { cat $@.log; exit 1; }

clean:
	rm -rf $(VENV) .venv-oldest .venv-tools sbom-*.cdx.json *-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
