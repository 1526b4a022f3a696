"""Series that no driver tells: whatever Prometheus has of a stream, there is a measurement."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.decisions import decide
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream_operator.observe.measurement import (
    PARTITION_METRICS,
    QUERY_METRICS,
    Measurement,
    measure,
)
from balancedstream_operator.observe.series import Series, find_oldest, find_pace_s

SCRAPES_S = (100.0, 115.0, 130.0)


def series(name: str, *values: float, **labels: str) -> Series:
    """A metric of the stream's driver at each scrape."""
    named = {"__name__": f"balancedstream_{name}", "pod": "clicks-driver", **labels}
    return Series(named, tuple(zip(SCRAPES_S, values, strict=True)))


def of_query(query: str, *, backlog: float = 5.0) -> list[Series]:
    """What a driver tells of a query with a batch between two scrapes."""
    return [
        series("batches_total", 1, 2, 3, query=query),
        series("last_batch_id", 0, 1, 2, query=query),
        series("batch_duration_seconds_sum", 5, 10, 15, query=query),
        series("input_rows_total", 400, 800, 1200, query=query),
        series("driver_seconds_total", 0.1, 0.2, 0.3, query=query, part="planning"),
        series("last_batch_timestamp_seconds", 99, 114, 129, query=query),
        series("last_batch_duration_seconds", 5, 5, 5, query=query),
        series("backlog_rows", backlog, backlog, backlog, query=query),
    ]


DRIVER = [
    series("plan_epoch", 1, 1, 1),
    series("executors", 2, 2, 2),
    series("executor_cores", 1, 1, 1, executor="a"),
    series("executor_cores", 1, 1, 1, executor="b"),
]


def of_partition(partition: int, busy_s: float) -> list[Series]:
    """What a driver tells of a partition that runs on `a`."""
    where = {"query": "q", "operator": "0", "partition": str(partition)}
    return [
        series("partition_busy_seconds_total", *(n * busy_s for n in (1, 2, 3)), **where),
        series("partition_state_load_seconds_total", 0, 0, 0, **where),
        series("partition_records_total", 100, 200, 300, **where),
        series("partition_state_bytes", 9, 9, 9, **where),
        series("partition_executor_info", 1, 1, 1, **where, executor="a"),
    ]


PARTITIONS = [*of_partition(0, 2.0), *of_partition(1, 1.0)]


def look(queries: list[Series], partitions: list[Series]) -> Measurement:
    find_oldest(queries, 10)
    find_pace_s(queries)
    return measure(queries, partitions, 135.0)


def is_sound(found: Measurement) -> bool:
    batches = all(batch.is_sound() for batch in found.batches)
    tasks = all(task.is_sound() for task in found.tasks)
    return batches and tasks and all(stage.is_sound() for stage in found.stages)


USUAL = look([*DRIVER, *of_query("q")], PARTITIONS)

VALUES = (
    st.sampled_from([0.0, 1.0, -1.0, 1e15, 1e300, float("nan"), float("inf"), -float("inf")])
    | st.integers(0, 9).map(float)
    | st.floats()
)
TEXTS = st.sampled_from(["odd", "", "0", "1", "-1", "9" * 5000, "²", "x", "stateful", "a"])
NAMES = st.sampled_from([*QUERY_METRICS, *PARTITION_METRICS])
LABELS = st.dictionaries(
    st.sampled_from(["operator", "partition", "executor", "kind", "part", "cause", "outcome"])
    | st.sampled_from(["shuffle", "key"]),
    TEXTS,
)


@st.composite
def strange_series(draw: st.DrawFn) -> Series:
    """A metric with any labels but a query of the driver's, and any values."""
    labels: Mapping[str, str] = draw(LABELS)
    name = draw(NAMES)
    query = draw(st.sampled_from([{}, {"query": "odd"}, {"query": ""}]))
    times = draw(st.lists(st.sampled_from([*SCRAPES_S, 120.0]), unique=True).map(sorted))
    samples = tuple((time_s, draw(VALUES)) for time_s in times)
    return Series({"__name__": name, "pod": "clicks-driver", **labels, **query}, samples)


STRANGE = st.lists(strange_series(), max_size=12)


def test_a_name_that_no_status_can_hold_is_no_drivers() -> None:
    # prometheus/client_python#564: half of a surrogate pair in a label ended all that wrote it.
    assert look([*DRIVER, *of_query("q"), *of_query("caf\udca0")], PARTITIONS) == USUAL


@settings(deadline=None)
@given(STRANGE, STRANGE)
def test_strange_series_change_nothing_about_the_query_beside_them(
    queries: list[Series], partitions: list[Series]
) -> None:
    own = {"balancedstream_plan_epoch", "balancedstream_executors", "balancedstream_executor_cores"}
    strange = [s for s in queries if s.labels["__name__"] not in own]
    found = look([*DRIVER, *of_query("q"), *strange], [*PARTITIONS, *partitions])
    # A series that lags behind holds the newest scrape back: it may arrive in parts.
    batches = [batch for batch in found.batches if batch.query == "q"]
    assert batches[:1] == list(USUAL.batches[:1])
    assert {*batches} <= {*USUAL.batches}
    assert {*USUAL.tasks} >= {task for task in found.tasks if task.query == "q"}
    assert is_sound(found)
    seen = Observation(135.0, found.executors, found.tasks, found.batches, stages=found.stages)
    assert decide(seen, Policy(scaling=ScalingPolicy(max_executors=4))).scaling.reason


@settings(deadline=None)
@given(st.data())
def test_a_driver_that_tells_anything_is_measured_as_far_as_it_can_be(data: st.DataObject) -> None:
    told = [*of_query("q"), *of_query("r"), *PARTITIONS]
    odd = [
        Series(s.labels, tuple((at_s, data.draw(VALUES)) for at_s, _ in s.samples)) for s in told
    ]
    found = look([*DRIVER, *odd[:16]], odd[16:])
    assert found.executors == {"a": 1, "b": 1}
    assert is_sound(found)


def test_a_driver_that_says_to_have_run_any_number_of_batches_is_not_believed() -> None:
    forged = of_query("q")
    forged[0] = series("batches_total", 1, 10**15, 10**16, query="q")
    assert look([*DRIVER, *forged], []).batches == ()
