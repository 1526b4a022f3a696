# Two commands matter: `make demo` and `make test`. Each sets up all that it needs.
.PRECIOUS: .venv-spark-%/.ready
.PHONY: demo demo-kubernetes test e2e e2e-ci lint unit integration spark-versions spark-engines plugin-apps lowest lock sbom release-check clean

VENV := .venv
BIN := $(VENV)/bin
REPORT ?= demo-report
# Each Spark that is supported, but the one in constraints.txt, and what it cannot do with others.
SPARKS := 3.5.9 4.0.5 4.1.4 4.2.1
# What benchmarks/beside_flink.py runs. Flink's Python pins py4j and pyarrow otherwise than Spark does, so
# its jars have an environment of their own; nothing of ours imports them.
FLINK := 2.3.0
CONNECT := grpcio==1.85.3 grpcio-status==1.85.3 googleapis-common-protos==1.76.0 zstandard==0.25.0
PINS_3.5 := numpy==1.26.4 py4j==0.10.9.7 pyarrow==19.0.1
constrain = sed $(foreach pin,pyspark==$(1) $(PINS_$(basename $(1))),-e 's/^$(firstword $(subst ==, ,$(pin)))==.*/$(pin)/') constraints.txt
TOOLS := .venv-tools/bin
LOCK := $(TOOLS)/uv pip compile --quiet --no-config --universal --python-version 3.11 \
  --generate-hashes --no-header --no-annotate --no-emit-index-url

demo: $(VENV)/.ready
	@$(BIN)/python examples/01-flights/demo.py --report $(REPORT)

# On the same clusters as `make e2e`. KEEP=1 leaves the stream, and a cluster that was started for it.
demo-kubernetes: $(VENV)/.ready
	@$(BIN)/python examples/05-kubernetes/demo.py $(if $(filter 1,$(KEEP)),--keep)

# Files side by side, the long ones first: on two cores Spark's tests wait for much else than these.
# Of the longest files, some take their turn; `make integration` runs them all.
# Simulated schedules are drawn anew: of those that nobody has seen, one in thousands may find something.
test: lint $(VENV)/spark.jsa
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --turns 4 \
	  tests/integration tests/prometheus tests/simulation tests/unit operator \
	  runtime/balancedstream

# On the cluster of KUBECONFIG, on kind where Docker runs, or on tests/cluster where root and Go are.
e2e: $(VENV)/.ready
	@$(BIN)/python -m pytest -m e2e tests/e2e tests/chart

e2e-ci: $(VENV)/.ready
	@$(BIN)/python -m pytest -m "e2e_ci or turn" --turns 1 tests/e2e tests/chart

lint: $(VENV)/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# What `pytest` alone runs (testpaths in pyproject.toml); about 5 minutes on two cores.
unit: $(VENV)/.ready
	@$(BIN)/python -m pytest -n 2 --dist worksteal

integration: $(VENV)/spark.jsa
	@$(BIN)/python -m pytest tests/integration

# All that runs on each older Spark, in environments of their own: half an hour each.
spark-versions: $(SPARKS:%=spark-%)

# Of these, the tests of the engine: two at a time, as `make test` has two sessions of Spark.
# CI runs the oldest Spark and one of the others, and one long file, drawn anew; it has no time for all.
ENGINES := $(if $(CI),$(firstword $(SPARKS)) $(shell shuf -n 1 -e $(wordlist 2,9,$(SPARKS))),$(SPARKS))
TURNS := $(if $(CI),--turns 1)
spark-engines: $(VENV)/.ready
	@$(MAKE) --no-print-directory -j 2 $(ENGINES:%=spark-engine-%)

spark-%: .venv-spark-%/.ready
	@.venv-spark-$*/bin/python benchmarks/compatibility.py

spark-engine-%: .venv-spark-%/.ready
	@.venv-spark-$*/bin/python -m pytest $(TURNS) tests/integration/test_engine*.py

# The plugin under each kind of application on each Spark, for the table of docs/attach-by-settings.md;
# a run that has a line in the results is not made again.
plugin-apps: $(VENV)/.connect $(SPARKS:%=.venv-spark-%/.connect)
	@$(BIN)/python spark-plugin/build_jar.py
	@$(BIN)/python benchmarks/plugin_apps.py
	@$(BIN)/python benchmarks/summarize.py >/dev/null

# What a client of Spark Connect needs.
%/.connect: %/.ready
	@$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(CONNECT)
	@touch $@

.venv-spark-%/.ready: pyproject.toml constraints.txt $(VENV)/.ready
	@$(BIN)/python -m venv .venv-spark-$*
	@$(call constrain,$*) > .venv-spark-$*/constraints.txt
	@.venv-spark-$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  -c .venv-spark-$*/constraints.txt -e '.[spark,examples]' duckdb pytest pytest-timeout pytest-xdist
	@touch $@

.venv-flink/.ready: $(VENV)/.ready
	@$(BIN)/python -m venv .venv-flink
	@.venv-flink/bin/python -m pip install --quiet --disable-pip-version-check --no-deps apache-flink-libraries==$(FLINK)
	@touch $@

# With the oldest of each package that pyproject.toml takes, but Spark: what uses them beside it.
lowest: .venv-lowest/.ready
	@.venv-lowest/bin/python -m pytest tests/unit/live tests/unit/report tests/unit/metrics \
	  tests/unit/test_cli.py tests/unit/launch/test_policies.py

.venv-lowest/.ready: pyproject.toml constraints.txt .venv-tools/.ready
	@$(BIN)/python -m venv .venv-lowest
	@grep -E '^(pyspark|py4j|pytest|hypothesis)==' constraints.txt >.venv-lowest/constraints.txt
	@$(TOOLS)/uv pip install --quiet --no-config --python .venv-lowest/bin/python \
	  --resolution lowest-direct -c .venv-lowest/constraints.txt -e '.[spark]' pytest hypothesis
	@touch $@

# What the images contain, with hashes; after a change of pyproject.toml or constraints.txt.
lock: .venv-tools/.ready
	@$(LOCK) -c constraints.txt --extra operator --extra aws --output-file docker/locks/operator.txt pyproject.toml
	@$(LOCK) -c constraints.txt --extra kubernetes --output-file docker/locks/spark-4.3.txt pyproject.toml
	@$(call constrain,$(filter 3.5.%,$(SPARKS))) > .venv-tools/constraints-3.5.txt
	@$(LOCK) -c .venv-tools/constraints-3.5.txt --extra kubernetes --output-file docker/locks/spark-3.5.txt pyproject.toml
	@$(LOCK) -c constraints.txt --output-file docker/locks/build.txt docker/locks/build.in
	@$(LOCK) -c constraints.txt --output-file docker/locks/tools.txt docker/locks/tools.in

# The Python packages of each image as CycloneDX, from the locks.
sbom: .venv-tools/.ready
	@for image in operator spark-4.3 spark-3.5; do \
	  $(TOOLS)/cyclonedx-py requirements --output-reproducible --output-file sbom-$$image.cdx.json docker/locks/$$image.txt; \
	done

# What a release consists of, in dist/ and with Docker, and whether pages name what its workflow pushes.
release-check: .venv-tools/.ready
	@$(BIN)/python -m pytest -q tests/unit/test_release.py tests/unit/test_version.py tests/unit/test_package.py
	@rm -rf dist
	@PATH="$$PATH:$$(tests/cluster/cluster bin)" $(BIN)/python release/artifacts.py dist $(if $(BASE),--base $(BASE))

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
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[aws,dev,e2e,examples,kubernetes,operator]'
	@touch $@

# Java lets an archive for other jars alone, so tests only take longer where this one is of no use.
$(VENV)/spark.jsa: $(VENV)/.ready docker/archive_classes.py
	@$(BIN)/python docker/archive_classes.py $@ >$@.log 2>&1 || { cat $@.log; exit 1; }

clean:
	rm -rf $(VENV) .venv-spark-* .venv-flink .venv-lowest .venv-tools dist sbom-*.cdx.json *-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
