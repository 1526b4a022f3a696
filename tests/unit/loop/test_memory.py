"""The memory that executors report is decided on, told and served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metric_samples import collect, select
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.memory.use import GIB, MemoryLimits
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import (
    BatchSample,
    ProcessSample,
    StageSample,
    StoreSample,
    TaskSample,
)
from balancedstream.engine.events import BatchFinished, QueryEnded, StatefulOperator
from balancedstream.loop.controller import Controller
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

BATCHES = 60
EXECUTORS = ("a", "b")
LIMITS = MemoryLimits(1.5 * GIB, 1.0 * GIB)


def finish(number: int, rocksdb: float) -> BatchFinished:
    """A batch every minute; each executor is busy for 40 s, and RocksDB takes so much on it."""
    end_s = 60.0 * number
    tasks = tuple(
        TaskSample("q", 0, p, number, EXECUTORS[p % 2], 10.0, 5, 9, end_s) for p in range(8)
    )
    return BatchFinished(
        "q",
        BatchSample("q", number, end_s, 41.0, 600, 60.0, 0.0, 60.0, gaps_s=1.0),
        tasks,
        (StatefulOperator((0,), "StateStoreSave", 8),),
        0,
        stages=(
            StageSample("q", number, "stateful", end_s, 8, 10.0, dict.fromkeys(EXECUTORS, 40.0)),
        ),
        stores=tuple(
            StoreSample("q", 0, number, e, int(rocksdb), 5, 9_000, 0.1, 3, 2) for e in EXECUTORS
        ),
        processes=tuple(
            ProcessSample(e, int(0.4 * GIB), 0, 0, int(0.7 * GIB + rocksdb)) for e in EXECUTORS
        ),
    )


def run(engine: ScriptedEngine, policy: Policy) -> tuple[History, Exporter]:
    """The whole script of an engine."""
    history, exporter = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11")), Exporter()
    journal = Journal(history, RecordingSpectator(), exporter, lambda: engine.now_s)
    controller = Controller(engine, policy, journal, clock=lambda: engine.now_s)
    controller.start()
    controller._thread.join()
    return history, exporter


def test_memory_that_grows_is_told_hours_before_the_limit_with_the_sizes_that_hold_it() -> None:
    batches = [finish(n, 0.2 * GIB + n * 0.1 / 60 * GIB) for n in range(BATCHES)]
    engine = ScriptedEngine(list(batches), dict.fromkeys(EXECUTORS, 1))
    engine.memory_limits = LIMITS
    history, exporter = run(engine, Policy(scaling=ScalingPolicy(max_executors=4)))
    reason = history.decisions[-1].reason
    assert reason.startswith("memory-bound: ")
    assert history.decisions[-1].kind == "limited"
    # 0.5 GiB are free, and 0.1 GiB an hour come on each.
    assert "takes 1.00 of 1.50 GiB" in reason
    assert "the limit is reached in 5.0 hours" in reason
    assert (
        "These sizes hold it: spark.executor.memory=1024m, spark.executor.memoryOverhead=" in reason
    )
    samples = collect(exporter)
    limits = select(samples, "executor_memory_limit_bytes")
    assert limits == {("executor",): 1.5 * GIB, ("heap",): 1.0 * GIB, ("rocksdb",): 0.0}
    (growth,) = select(samples, "state_memory_growth_bytes_per_second").values()
    assert abs(growth - 0.2 * GIB / 3600) < 0.01 * growth
    reads = select(samples, "executor_state_reads_total")
    assert reads == {(e, "0", "q"): 9_000 * BATCHES for e in EXECUTORS}


def test_where_nothing_limits_an_executor_its_growth_is_shown_and_nothing_else() -> None:
    batches = [finish(n, 0.2 * GIB + n * 0.1 / 60 * GIB) for n in range(BATCHES)]
    engine = ScriptedEngine(list(batches), dict.fromkeys(EXECUTORS, 1))
    history, exporter = run(engine, Policy(scaling=ScalingPolicy(max_executors=4)))
    assert not any("memory-bound" in decision.reason for decision in history.decisions)
    assert select(collect(exporter), "state_memory_growth_bytes_per_second")


def test_what_a_query_took_is_gone_with_it() -> None:
    other = replace(finish(1, 0.1 * GIB), query="other")
    other = replace(
        other,
        sample=replace(other.sample, query="other"),
        tasks=tuple(replace(t, query="other") for t in other.tasks),
        stages=tuple(replace(s, query="other") for s in other.stages),
        stores=tuple(replace(s, query="other") for s in other.stores),
        processes=(),
    )
    events: list[Any] = [finish(1, 0.3 * GIB), QueryEnded("q", None), other]
    _, exporter = run(ScriptedEngine(events, dict.fromkeys(EXECUTORS, 1)), Policy())
    parts = select(collect(exporter), "executor_memory_bytes")
    assert parts["a", "rocksdb"] == int(0.1 * GIB)
    assert {key[0] for key in select(collect(exporter), "executor_state_memory_bytes")} == {
        "a",
        "b",
    }


def _labels(exporter: Exporter) -> list[tuple[str, dict[str, str]]]:
    return [(name, dict(labels)) for name, labels in collect(exporter)]
