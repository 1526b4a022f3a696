"""Every metric is documented, and Prometheus's own tool understands the names and the queries."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from metric_samples import (
    batch_of,
    collect,
    fetch,
    shuffled,
    stage_of,
    task_of,
)
from metric_stories import Story, tell_batches
from programs import PROMETHEUS, find_tool

from balancedstream.core.memory.use import ExecutorMemory, Memory, MemoryLimits, StateReads
from balancedstream.core.money import Price
from balancedstream.core.samples import KeySample, SlotHolder, StoreSample
from balancedstream.core.wire import series as wire
from balancedstream.metrics.catalogue import (
    BATCH_DURATION_BUCKETS_S,
    METRICS,
    SERIES_PER_PARTITION,
)
from balancedstream.metrics.exporter import MAX_PARTITION_SERIES, Exporter
from balancedstream_operator.observe.measurement import PARTITION_METRICS, QUERY_METRICS

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


METRICS_OF_0_1_0 = {
    ("version", "spark_version", "python_version"): "build_info",
    (): (
        "plan_epoch moves_total moves_settled_total key_moves_total key_moves_settled_total "
        "move_fixed_seconds move_bytes_per_second move_key_seconds executors executors_wanted"
    ),
    ("direction",): "scale_actions_total",
    ("executor",): "executor_cores",
    ("query",): (
        "batches_total last_batch_id last_batch_timestamp_seconds last_batch_duration_seconds "
        "input_rows_total input_rows_per_second processed_rows_per_second backlog_rows "
        "keys_under_way last_key_arrival_batch task_failures_total"
    ),
    ("query", "operator", "kind"): "decisions_total",
    ("query", "operator"): (
        "imbalance_ratio imbalance_bound_ratio moves_under_way partitions partitions_hidden"
    ),
    ("query", "operator", "executor"): (
        "executor_busy_seconds_total executor_state_load_seconds_total executor_records_total "
        "executor_state_bytes executor_partitions"
    ),
    ("query", "operator", "partition", "key"): "hot_key_busy_seconds",
    ("query", "operator", "partition"): (
        "partition_busy_seconds_total partition_state_load_seconds_total "
        "partition_records_total partition_state_bytes"
    ),
    ("shuffle", "routed"): "shuffle_batches_total",
    ("shuffle",): (
        "shuffle_trusted shuffle_untrusted_batches shuffle_estimate_error_ratio "
        "shuffle_equal_error_ratio shuffle_imbalance_ratio"
    ),
    ("shuffle", "shuffle_partition"): (
        "shuffle_estimated_seconds_total shuffle_real_seconds_total"
    ),
    ("query", "operator", "partition", "executor"): "partition_executor_info",
}
"""By labels. An operator of that release reads them, and people have dashboards of them."""


def test_a_metric_keeps_its_name_and_labels() -> None:
    served = {metric.removeprefix("balancedstream_"): metric.labels for metric in METRICS}
    for labels, names in METRICS_OF_0_1_0.items():
        for name in names.split():
            assert served.get(name) == labels, name


def test_what_decisions_are_made_from_is_served_and_read() -> None:
    named = {metric for metric in vars(wire).values() if isinstance(metric, wire.Metric)}
    assert named - METRICS.keys() == {wire.BATCH_DURATION, wire.BATCH_DURATION_SUM}
    assert named - {wire.BATCH_DURATION} == {*QUERY_METRICS, *PARTITION_METRICS}


@pytest.mark.parametrize("told", [False, True], ids=["idle", "busy"])
def test_promtool_has_nothing_to_say_against_the_names(exporter: Exporter, told: bool) -> None:
    if told:
        for _ in tell_batches(Story(exporter), random.Random(3), 10):
            pass
    command = [find_tool("promtool", PROMETHEUS), "check", "metrics"]
    page = fetch(exporter)
    check = subprocess.run(command, input=page, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


def test_promtool_understands_every_documented_query(tmp_path: Path) -> None:
    promtool = find_tool("promtool", PROMETHEUS)
    queries = re.findall(r"```promql\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert len(queries) >= 5
    lines = ["groups:", "  - name: documented", "    rules:"]
    for number, query in enumerate(queries):
        lines += [f"      - record: documented:{number}", "        expr: |"]
        lines += ["          " + line for line in query.splitlines()]
    rules = tmp_path / "rules.yml"
    rules.write_text("\n".join(lines) + "\n", "utf-8")
    command = [promtool, "check", "rules", str(rules)]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_where_promtool_is_missing_a_laptop_skips_and_ci_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="promtool is not installed; it comes with Prometheus"):
        find_tool("promtool", PROMETHEUS)


def told_exporter() -> Exporter:
    exporter = Exporter()
    for _ in tell_batches(Story(exporter), random.Random(1), 30):
        pass
    exporter.on_shuffle(shuffled())
    tell_memory(exporter, executors=1, operators=1)
    return exporter


def tell_memory(exporter: Exporter, *, executors: int, operators: int) -> None:
    """Tells all that can be known of memory, of executors and operators from 0 on."""
    reads = tuple(StateReads("q", n, 2e-5, 1e-5, 0.5, 1.0, 9.0) for n in range(operators))
    uses = tuple(ExecutorMemory(str(n)) for n in range(executors))
    stores = [StoreSample("q", number, 1, "0", 64) for number in range(operators)]
    exporter.on_memory(Memory(uses, MemoryLimits(), reads, 0.5), stores)


def test_the_document_lists_every_metric_and_nothing_else() -> None:
    row = re.compile(r"^\| `(balancedstream_\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
    documented = {
        name: (kind, "" if labels == "none" else labels.replace("`", ""), meaning)
        for name, kind, labels, meaning in row.findall(DOCUMENT.read_text("utf-8"))
    }
    exporter = Exporter()
    batch = batch_of(interval_s=1.0, backlog_rows=1.0, trigger_s=5.0)
    exporter.on_batch(batch, [task_of(0)], {"0": 1}, [stage_of()])
    tell_memory(exporter, executors=1, operators=1)
    exporter.on_idle("q", 9.0)
    exporter.on_holders([SlotHolder("live", "real-time", 3, {"0": 2})])
    exporter.on_imbalance("q", 0, 1.0, 1.0)
    exporter.on_scale(1, 1, 2)
    exporter.on_executors_advised(3)
    exporter.on_price(Price(0.5, "EUR"), 6)
    exporter.on_keys_under_way("q", 1, 3)
    exporter.on_hot_keys("q", 0, (KeySample("q", 0, '"de"', 0, 1, 0.5),))
    exporter.on_shuffle(shuffled())
    exported = {}
    for family in exporter.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = [label for label in family.samples[0].labels if label != "le"]
        exported[name] = family.type, ", ".join(labels), family.documentation
    assert documented == exported


def test_the_document_mentions_no_metric_that_does_not_exist() -> None:
    exported = {
        sample.name
        for told in (Exporter(), told_exporter())
        for family in told.collect()
        for sample in family.samples
    } | {family.name for family in Exporter().collect()}
    mentioned = set(re.findall(r"balancedstream_\w+", DOCUMENT.read_text("utf-8")))
    assert mentioned <= exported


def test_the_document_tells_the_limit_and_the_number_of_series() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert f"max_partition_series={MAX_PARTITION_SERIES:_}" in text
    assert f"{MAX_PARTITION_SERIES // SERIES_PER_PARTITION:,} partitions over all queries" in text
    bounds = [f"{bound:g}" for bound in BATCH_DURATION_BUCKETS_S]
    assert f"{', '.join(bounds[:-1])} and {bounds[-1]} seconds" in text
    documented = {
        what: int(count)
        for what, count in re.findall(r"^\| ([a-z ]+) \| (\d+)\b.* \|$", text, re.MULTILINE)
    }
    exporter = Exporter()
    executors = {"0": 1, "1": 1, "2": 1}
    tasks = [task_of(p, operator=o) for p in range(7) for o in range(2)]
    batch = batch_of(interval_s=1.0, backlog_rows=1.0, trigger_s=5.0)
    stages = [stage_of("source", executors), stage_of("stateful", executors)]
    exporter.on_batch(batch, tasks, executors, stages)
    exporter.on_idle("q", 9.0)
    exporter.on_holders([SlotHolder("live", "real-time", 3, {"0": 2})])
    exporter.on_scale(3, 3, 4)
    exporter.on_price(Price(0.5, "EUR"), 6)
    for operator in range(2):
        exporter.on_imbalance("q", operator, 1.0, 1.0)
    exporter.on_shuffle(shuffled(partitions=3))
    tell_memory(exporter, executors=3, operators=2)
    counts = {
        "application": 1,
        "live executor": 3,
        "query": 1,
        "query that holds slots": 1,
        "query that holds slots and executor with some": 1,
        "kind of stage of a query": 2,
        "kind of stage of a query and live executor": 6,
        "stateful operator": 2,
        "stateful operator and live executor": 6,
        "shuffle": 1,
        "partition of a shuffle": 3,
        "state partition": 14,
    }
    assert documented.keys() == counts.keys()
    assert len(collect(exporter)) == sum(count * documented[what] for what, count in counts.items())
