"""Batches that take longer than all windows, of several queries that share executors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancedstream.core.decisions import decide
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, StageSample, TaskSample
from balancedstream.core.scaling.verdicts import Verdict

POLICY = Policy(scaling=ScalingPolicy(max_executors=8))


def take_turns(batch_s: float, now_s: float, busy: float = 1.0) -> Observation:
    """Two queries whose batches take turns on one executor, 16 batches so far.

    Args:
        batch_s: how long a batch takes.
        now_s: the time of the decision.
        busy: part of that time for which the executor is; if it always is, ever more rows wait.
    """
    behind = 9_000.0 if busy == 1.0 else 0.0
    busy_s = busy * batch_s
    ends = [
        (query, n, batch_s * (2 * n + first)) for n in range(8) for first, query in enumerate("pq")
    ]
    return Observation(
        now_s=now_s,
        executors={"a": 1},
        tasks=tuple(
            TaskSample(query, 0, partition, n, "a", busy_s / 2, 30_000, 10, end_s)
            for query, n, end_s in ends
            for partition in (0, 1)
        ),
        batches=tuple(
            BatchSample(query, n, end_s, batch_s, 60_000, 2 * batch_s, behind * n)
            for query, n, end_s in ends
        ),
        stages=tuple(
            StageSample(query, n, "stateful", end_s, 2, busy_s / 2, {"a": busy_s})
            for query, n, end_s in ends
        ),
    )


@pytest.mark.parametrize("batch_s", [120.0, 200.0, 400.0])
@pytest.mark.parametrize("part", [0.05, 0.5, 0.95])
def test_queries_add_up_at_any_moment_of_a_batch(batch_s: float, part: float) -> None:
    found = decide(take_turns(batch_s, (15 + part) * batch_s), POLICY)
    assert found.scaling.utilization == pytest.approx(1.0)
    assert found.scaling.verdict == Verdict.CAPACITY


def test_a_query_that_ended_or_waits_or_is_late_does_not_count() -> None:
    observation = take_turns(200.0, 15.95 * 200.0)
    ended = decide(replace(observation, running=("q",)), POLICY)
    assert ended.scaling.utilization == pytest.approx(0.5)
    waits = decide(replace(observation, idle_s={"p": observation.now_s}), POLICY)
    assert waits.scaling.utilization == pytest.approx(0.5)
    assert decide(take_turns(200.0, 4000.0), POLICY).scaling.verdict == Verdict.HOLD


@pytest.mark.parametrize(("age_s", "known"), [(590.0, True), (890.0, True), (910.0, False)])
def test_a_query_with_a_slow_trigger_is_measured_until_its_next_batch_is_late(
    age_s: float, known: bool
) -> None:
    batches = [BatchSample("q", n, 600.0 * n, 300.0, 900, 600.0, 0.0, 600.0) for n in range(9)]
    stages = [StageSample("q", n, "stateful", 600.0 * n, 8, 40.0, {"a": 290.0}) for n in range(9)]
    seen = Observation(4800.0 + age_s, {"a": 1}, batches=tuple(batches), stages=tuple(stages))
    found = decide(seen, POLICY).scaling
    assert bool(found.demands) is known, found.reason
    assert found.verdict is (Verdict.STEADY if known else Verdict.HOLD)


def test_what_a_slow_query_did_long_ago_removes_no_executor() -> None:
    observation = take_turns(200.0, 15.95 * 200.0, busy=0.1)
    found = decide(replace(observation, executors={"a": 1, "b": 1}), POLICY).scaling
    assert found.verdict == Verdict.HOLD
    assert "its last batch ended 390 s ago" in found.reason
