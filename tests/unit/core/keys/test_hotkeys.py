from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.keys.hotkeys import HotKeySketch, parse_hot_keys
from balancedstream.errors import InvalidInputError

Stream = list[tuple[bytes, int]]

# Few keys and few counters, so that counters are often taken over.
streams = st.lists(
    st.tuples(st.integers(0, 30).map(lambda number: b"%d" % number), st.integers(0, 100)),
    max_size=200,
)
epsilons = st.sampled_from([1.0, 0.5, 0.3, 0.2, 0.1, 0.05])


def sketch_of(stream: Iterable[tuple[bytes, float]], epsilon: float) -> HotKeySketch:
    sketch = HotKeySketch(epsilon)
    for key, weight in stream:
        sketch.update(key, weight)
    return sketch


def weigh(stream: Stream) -> Counter[bytes]:
    truth: Counter[bytes] = Counter()
    for key, weight in stream:
        truth[key] += weight
    return truth


def assert_bounds_hold(sketch: HotKeySketch, truth: Counter[bytes]) -> None:
    held = {entry.key: entry for entry in sketch.top(sketch.capacity)}
    allowed = sketch.epsilon * truth.total() * (1 + 1e-12)
    assert sketch.total == truth.total()
    assert len(held) <= sketch.capacity
    assert sketch.untracked_most <= allowed
    for key, weight in truth.items():
        if key in held:
            assert held[key].least <= weight <= held[key].most
            assert 0 <= held[key].error <= allowed
        else:
            assert weight <= sketch.untracked_most


@given(streams, epsilons)
def test_every_key_is_within_the_bounds(stream: Stream, epsilon: float) -> None:
    assert_bounds_hold(sketch_of(stream, epsilon), weigh(stream))


@given(streams, streams, epsilons)
def test_a_sketch_that_was_written_and_read_goes_on_the_same(
    before: Stream, after: Stream, epsilon: float
) -> None:
    sketch = sketch_of(before, epsilon)
    read = parse_hot_keys(sketch.to_json())
    assert read == sketch
    for key, weight in after:
        sketch.update(key, weight)
        read.update(key, weight)
    assert read == sketch


@given(streams)
def test_with_a_counter_for_every_key_it_is_exact(stream: Stream) -> None:
    sketch = sketch_of(stream, 1 / 31)
    assert {entry.key: entry.most for entry in sketch.top(31)} == +weigh(stream)
    assert all(entry.error == 0 for entry in sketch.top(31))


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.floats(0, 1e6)), max_size=50))
def test_fractions_are_within_the_bounds_up_to_rounding(stream: list[tuple[bytes, float]]) -> None:
    sketch = sketch_of(stream, 0.5)
    for entry in sketch.top(2):
        weight = math.fsum(weight for key, weight in stream if key == entry.key)
        # Rounding is that of the counter, which may be far above the key's own weight.
        assert entry.least <= weight + 1e-9 * entry.most
        assert entry.most >= weight - 1e-9 * entry.most


def test_hot_keys_among_many_are_found_by_what_they_cost_and_not_by_how_many_they_are() -> None:
    chance = random.Random(5)
    frequent = [(b"cold %d" % chance.randrange(50_000), 1.0) for _ in range(50_000)]
    dear = [(b"dear", 400.0)] * 20 + [(b"often", 2.0)] * 2_000
    stream = frequent + dear
    chance.shuffle(stream)
    sketch = sketch_of(stream, epsilon=0.01)
    assert [entry.key for entry in sketch.top(2)] == [b"dear", b"often"]
    assert sketch.top(1)[0].least > 8_000 - 0.01 * sketch.total
    assert len(sketch.top(1_000)) == sketch.capacity == 100


def test_the_lightest_of_equals_to_go_is_told_by_the_key() -> None:
    sketch = sketch_of([(b"b", 1), (b"a", 1), (b"c", 1)], epsilon=0.5)
    assert [(entry.key, entry.most, entry.error) for entry in sketch.top(5)] == [
        (b"c", 2, 1),
        (b"b", 1, 0),
    ]


def test_a_weight_of_nothing_takes_no_counter() -> None:
    assert sketch_of([(b"a", 0.0)], epsilon=1.0).top(1) == []


@pytest.mark.parametrize("epsilon", [0.0, -0.1, 1.1, math.nan])
def test_an_epsilon_that_bounds_nothing_is_refused(epsilon: float) -> None:
    with pytest.raises(InvalidInputError, match=r"^epsilon:"):
        HotKeySketch(epsilon)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(InvalidInputError, match=r"^weight:"):
        HotKeySketch(0.1).update(b"a", weight)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"^count:"):
        HotKeySketch(0.1).top(-1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "{}",
        '{"epsilon":0.5,"total":1.0}',
        '{"epsilon":2,"total":1.0,"keys":[]}',
        '{"epsilon":0.5,"total":1.0,"keys":[["*",1.0,0.0]]}',
        '{"epsilon":0.5,"total":1.0,"keys":[["ZGU=",1.0]]}',
        '{"epsilon":0.5,"total":1.0,"keys":[["ZGU=",{},0.0]]}',
        '{"epsilon":0.5,"total":1.0,"keys":[[3,1.0,0.0]]}',
        '{"epsilon":1,"total":2.0,"keys":[["ZGU=",1.0,0.0],["ZnI=",1.0,0.0]]}',
        '{"epsilon":0.5,"total":2.0,"keys":[["ZGU=",1.0,0.0],["ZGU=",1.0,0.0]]}',
    ],
)
def test_what_is_no_sketch_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_hot_keys(text)
