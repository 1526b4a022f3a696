"""What the listener reports of a batch, as it should be and as it should not."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.samples import BatchSample
from balancedstream.engine.measuring.batches import QueryRun

Report = dict[str, Any]


def report(batch: int, started: str = "2026-11-29T10:00:00.000Z") -> Report:
    """As `BatchListener` writes it."""
    return {
        "event": "batch_finished",
        "run": "r",
        "progress": {
            "id": "i",
            "name": "q",
            "batchId": batch,
            "timestamp": started,
            "numInputRows": 60,
            "durationMs": {"triggerExecution": 1500, "queryPlanning": 300, "addBatch": 1200},
            "stateMetrics": [["rocksdbGetCount"]],
            "sources": [
                {
                    "description": "KafkaV2[Subscribe[t]]",
                    "start": None,
                    "end": '{"t":{"0":4}}',
                    "latest": '{"t":{"0":9}}',
                    "rows": 60,
                    "files": None,
                }
            ],
        },
        "trigger_ms": 5000,
        "bound_rows": None,
        "operators": [
            {
                "id": 0,
                "partitions": 1,
                "state_root": "/c",
                "name": "StateStoreSave",
                "merged": False,
            }
        ],
        "tasks": {
            "operator": [0],
            "stage": [7],
            "task": [0],
            "partition": [0],
            "executor": ["a"],
            "busy_ms": [900],
            "records": [60],
            "state_bytes": [1000],
            "restore_ms": [0],
            "finished_ms": [1_764_000_001_000],
        },
        "stages": [["stateful", 1, 900, 1_764_000_000_000, 1_764_000_000_900, {"a": 900}]],
        "knows_all_executors": True,
        "preparations": [[0, 0, "b", "loaded", 40, -1, False, ""]],
    }


def test_a_batch_has_its_times_in_seconds_and_what_waits_at_its_sources() -> None:
    run = QueryRun.begin("q", "r")
    run.finish_batch(report(0))
    batch = run.finish_batch(report(1, "2026-11-29T10:00:05.000Z"))
    finished_s = 1_795_946_405.0 + 1.5
    assert batch.sample == BatchSample(
        *("q", 1, finished_s, 1.5, 60, 5.0, 5.0, 5.0),
        planning_s=0.3,
        gaps_s=0.3,
    )
    assert (batch.tasks[0].busy_s, batch.operators[0].name) == (0.9, "StateStoreSave")
    assert batch.in_rocksdb
    assert batch.has_state
    assert batch.is_sound()


def test_no_time_passes_between_batches_while_the_clock_is_set_back() -> None:
    run = QueryRun.begin("q", "r")
    run.finish_batch(report(0))
    assert run.finish_batch(report(1, "2026-11-29T09:00:00.000Z")).sample.interval_s is None
    assert run.finish_batch(report(2, "2026-11-29T09:00:07.000Z")).sample.interval_s == 7.0


def paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a document can be changed."""
    inner = node.items() if isinstance(node, dict) else enumerate(node)
    found = []
    for key, value in inner:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += paths(value, (*path, key))
    return found


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(paths(report(1))), st.none() | st.just("missing") | ANYTHING)
def test_a_batch_that_cannot_be_read_leaves_nothing_behind(path: Any, value: Any) -> None:
    run, odd = QueryRun.begin("q", "r"), deepcopy(report(1))
    run.finish_batch(report(0))
    *way, last = path
    at: Any = odd
    for step in way:
        at = at[step]
    if value == "missing":
        del at[last]
    else:
        at[last] = value
    known = replace(run)
    try:
        run.finish_batch(odd)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        assert replace(run, last_batch=0) == replace(known, last_batch=0)
