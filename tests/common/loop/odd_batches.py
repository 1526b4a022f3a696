"""Batches as nobody expects them: numbers that are negative, absurd or none."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from balancedstream.core.samples import (
    LARGEST,
    BatchSample,
    ShuffleRecord,
    StageSample,
    TaskSample,
)
from balancedstream.engine.events import BatchFinished, Preparation, StatefulOperator

NAMES = st.sampled_from(["odd", 'q\n"{}', "ü" * 300, "\x1b[2J"]) | st.text(min_size=1, max_size=5)
SOUND = st.sampled_from([0.0, 1e-9, 0.5, 3.0, 1e12]) | st.floats(0, LARGEST, exclude_max=True)
COUNTS = st.sampled_from([0, 1, 7]) | st.integers(0, int(LARGEST) - 1)
NUMBERS = SOUND | st.sampled_from([-1.0, float("nan"), float("inf"), -float("inf"), 1e308])
INTEGERS = COUNTS | st.sampled_from([-1, -(2**63), 2**63 - 1, 10**400])
EXECUTORS = st.sampled_from(["a", "b", "gone"])
KINDS = st.sampled_from(["source", "stateful", "sink"])


def odd_batches(
    queries: SearchStrategy[str],
    numbers: SearchStrategy[float] = NUMBERS,
    counts: SearchStrategy[int] = INTEGERS,
) -> SearchStrategy[BatchFinished]:
    """Batches with any numbers, of an operator with four state partitions."""

    def build(query: str, batch: int) -> SearchStrategy[BatchFinished]:
        given, maybe = st.just(query), st.none() | numbers
        task = st.builds(
            TaskSample,
            *(given, st.just(0), st.integers(0, 3), st.just(batch), EXECUTORS),
            *(numbers, counts, counts, numbers, numbers, st.booleans()),
        )
        stage = st.builds(
            StageSample,
            *(given, st.just(batch), KINDS, numbers, counts, numbers),
            st.dictionaries(EXECUTORS, numbers, max_size=2),
        )
        states = st.sampled_from(["loading", "loaded", "due", "failed", "impossible"])
        preparation = st.builds(
            Preparation, st.just(0), st.integers(0, 3), EXECUTORS, states, maybe, maybe
        )
        sample = st.builds(
            BatchSample,
            *(given, st.just(batch), numbers, numbers, counts, maybe, maybe, maybe),
            *(numbers, numbers, numbers, numbers),
        )
        by_partition = st.lists(task, max_size=4, unique_by=lambda task: task.partition)
        return st.builds(
            BatchFinished,
            given,
            sample,
            by_partition.map(lambda tasks: tuple(sorted(tasks, key=lambda t: t.partition))),
            st.just((StatefulOperator((0,), "StateStoreSave", 4),)),
            st.integers(0, 4),
            stages=st.lists(stage, max_size=2).map(tuple),
            preparations=st.lists(preparation, max_size=2).map(tuple),
            has_state=st.booleans(),
        )

    return st.tuples(queries, st.integers(0, 9)).flatmap(lambda drawn: build(*drawn))


SHUFFLES = st.builds(
    ShuffleRecord,
    *(NUMBERS, NAMES, INTEGERS, INTEGERS, st.booleans()),
    *(st.lists(NUMBERS, max_size=3).map(tuple), st.lists(NUMBERS, max_size=3).map(tuple)),
    *(st.none() | NUMBERS, st.none() | NUMBERS, st.booleans(), NAMES),
)
