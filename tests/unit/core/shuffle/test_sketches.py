"""What records cost, estimated in constant memory."""

from __future__ import annotations

import math
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from shuffle_simulation.measuring import list_means, measure_change

from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.errors import InvalidInputError

Record = tuple[bytes, float]

items = st.binary(max_size=3)
costs_s = st.floats(0, 1000)
records = st.lists(st.tuples(items, costs_s), max_size=60)
seeds = st.integers(0, 2**64 - 1)


def sketch_of(records: Iterable[Record], *, seed: int = 7, epsilon: float = 0.05) -> CostSketch:
    sketch = CostSketch(epsilon, 0.1, seed=seed)
    for item, cost_s in records:
        sketch.update(item, cost_s)
    return sketch


def zipf_items(seed: int, exponent: float, distinct: int, count: int) -> list[bytes]:
    weights = [rank**-exponent for rank in range(1, distinct + 1)]
    chance = random.Random(seed)
    return [b"%d" % n for n in chance.choices(range(distinct), weights, k=count)]


def size_in_memory(sketch: CostSketch) -> int:
    return sum(sys.getsizeof(getattr(sketch, name)) for name in CostSketch.__slots__)


@pytest.mark.parametrize(
    ("epsilon", "delta", "columns", "rows"),
    [(0.05, 0.1, 55, 4), (0.001, 0.01, 2719, 7), (0.9, 0.5, 4, 1), (1e-5, 2**-16, 271829, 16)],
)
def test_its_size_follows_from_epsilon_and_delta(
    epsilon: float, delta: float, columns: int, rows: int
) -> None:
    sketch = CostSketch(epsilon, delta, seed=0)
    assert (sketch.columns, sketch.rows) == (columns, rows)


NO_NUMBERS = ["0.1", None, [0.1], 0.1j, True]


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, 1e-6, math.nan, math.inf, *NO_NUMBERS])
def test_an_epsilon_out_of_range_is_refused_by_its_name(epsilon: Any) -> None:
    with pytest.raises(InvalidInputError, match="epsilon: must be at least"):
        CostSketch(epsilon, 0.1, seed=0)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1e-6, math.nan, math.inf, *NO_NUMBERS])
def test_a_delta_out_of_range_is_refused_by_its_name(delta: Any) -> None:
    with pytest.raises(InvalidInputError, match="delta: must be at least"):
        CostSketch(0.05, delta, seed=0)


def test_numpys_numbers_are_as_good_as_pythons() -> None:
    sketch = CostSketch(np.float64(0.05), np.float64(0.1), seed=7)
    assert sketch.to_bytes() == CostSketch(0.05, 0.1, seed=7).to_bytes()


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused_by_its_name(seed: int) -> None:
    with pytest.raises(InvalidInputError, match="seed: must be at least"):
        CostSketch(0.05, 0.1, seed=seed)


@pytest.mark.parametrize("cost_s", [-0.001, math.nan, math.inf, -math.inf])
def test_a_cost_that_is_no_time_is_refused_and_nothing_is_counted(cost_s: float) -> None:
    sketch = sketch_of([(b"a", 1.0)])
    before = sketch.to_bytes()
    with pytest.raises(InvalidInputError, match="cost_s: must be 0 or more"):
        sketch.update(b"a", cost_s)
    assert sketch.to_bytes() == before


def test_costs_beyond_what_a_cell_holds_are_refused_and_nothing_is_counted() -> None:
    sketch = sketch_of([(b"a", 5e9)])
    before = sketch.to_bytes()
    with pytest.raises(InvalidInputError, match="292 years"):
        sketch.update(b"b", 5e9)
    with pytest.raises(InvalidInputError, match="292 years"):
        sketch.merge(sketch_of([(b"b", 5e9)]))
    assert sketch.to_bytes() == before


@given(items, st.lists(costs_s, min_size=1, max_size=20), seeds)
def test_an_item_alone_is_estimated_at_its_mean_cost(
    item: bytes, costs_s: list[float], seed: int
) -> None:
    sketch = sketch_of([(item, cost_s) for cost_s in costs_s], seed=seed)
    assert sketch.estimate(item) == pytest.approx(math.fsum(costs_s) / len(costs_s), abs=1e-9)


def test_an_item_that_shares_every_cell_costs_the_mean_of_those_it_shares_with() -> None:
    sketch = CostSketch(0.9, 0.9, seed=0)  # a single row of four columns
    by_cell: dict[tuple[int, ...], list[bytes]] = {}
    for n in range(20):
        by_cell.setdefault(sketch.locate(b"%d" % n), []).append(b"%d" % n)
    one, other = next(pair for pair in by_cell.values() if len(pair) >= 2)[:2]
    sketch.update(one, 1.0)
    sketch.update(other, 4.0)
    sketch.update(other, 4.0)
    assert sketch.estimate(one) == sketch.estimate(other) == 3.0


def test_an_item_never_seen_costs_what_items_seen_once_cost() -> None:
    frequent = [(b"frequent", 0.001)] * 100
    sketch = sketch_of([*frequent, (b"rare", 0.050), (b"seldom", 0.060)], epsilon=0.001)
    assert sketch.estimate(b"never") == pytest.approx(0.055)


def test_an_item_never_seen_costs_the_mean_of_all_where_no_item_was_seen_once() -> None:
    sketch = sketch_of([(b"a", 0.001), (b"a", 0.003)])
    assert sketch.estimate(b"never") == sketch.mean_cost_s == pytest.approx(0.002)


def test_an_estimate_of_an_unseen_item_follows_later_updates() -> None:
    # Among so many cells, none of these items shares one.
    sketch = sketch_of([(b"a", 0.010)], epsilon=0.001)
    assert sketch.estimate(b"never") == pytest.approx(0.010)
    sketch.update(b"b", 0.030)
    assert sketch.estimate(b"never") == pytest.approx(0.020)
    sketch.merge(sketch_of([(b"c", 0.080)], epsilon=0.001))
    assert sketch.estimate(b"never") == pytest.approx(0.040)


@given(seeds, st.sampled_from([0.5, 1.0, 1.5]), st.integers(200, 20_000))
@settings(max_examples=30)
def test_how_likely_an_unseen_item_comes_next_follows_from_those_seen_once(
    seed: int, zipf: float, count: int
) -> None:
    ranks = np.arange(1, 4097)
    shares = ranks**-zipf / (ranks**-zipf).sum()
    drawn = Counter(np.random.default_rng(seed).choice(4096, count, p=shares).tolist())
    sketch = CostSketch(0.001, 0.1, seed=seed)
    for item, records in drawn.items():
        sketch.update(b"%d" % item, 1.0, records=records)
    unseen = 1 - shares[list(drawn)].sum()
    # Good and Turing's own estimate has a deviation of about the root of the items seen once.
    chance = 5 * math.sqrt(sum(records == 1 for records in drawn.values()) + 1) / count
    assert sketch.estimate_unseen_share() == pytest.approx(unseen, rel=0.2, abs=chance)


def test_a_sketch_without_an_empty_cell_says_that_more_records_would_not_help() -> None:
    sketch = CostSketch(0.5, 0.1, seed=7)
    assert sketch.estimate_unseen_share() == 0.0
    for item in range(200):
        sketch.update(b"%d" % item, 1.0)
    assert sketch.estimate_unseen_share() == 0.0


def test_an_empty_sketch_takes_everything_to_cost_nothing() -> None:
    assert CostSketch(0.05, 0.1, seed=7).estimate(b"a") == 0.0
    assert CostSketch(0.05, 0.1, seed=7).mean_cost_s == 0.0


def test_cells_are_the_same_in_every_process_and_on_every_platform() -> None:
    sketch = CostSketch(0.05, 0.1, seed=7)
    assert sketch.locate(b"text") == (45, 92, 122, 201)
    assert CostSketch(0.05, 0.1, seed=8).locate(b"text") != (45, 92, 122, 201)


@settings(max_examples=40)
@given(seeds, st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(0, 1000))
def test_counts_exceed_the_truth_by_epsilon_of_all_records_for_few_items(
    seed: int, exponent: float, drawn: int
) -> None:
    seen = zipf_items(drawn, exponent, distinct=300, count=1000)
    sketch = sketch_of([(item, 0.001) for item in seen], seed=seed)
    over = [sketch.count(item) - count for item, count in Counter(seen).items()]
    assert min(over) >= 0
    beyond = sum(excess > sketch.epsilon * len(seen) for excess in over)
    assert beyond <= sketch.delta * len(over)


@settings(max_examples=40)
@given(seeds, st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(0, 1000))
def test_an_estimate_is_off_by_what_an_items_share_leaves_to_the_others_for_few_items(
    seed: int, exponent: float, drawn: int
) -> None:
    chance = random.Random(drawn)
    cost_s = {b"%d" % n: chance.uniform(0.001, 0.064) for n in range(300)}
    seen = zipf_items(drawn, exponent, distinct=300, count=1000)
    sketch = sketch_of([(item, cost_s[item]) for item in seen], seed=seed)
    counts = Counter(seen)
    beyond = 0
    for item, count in counts.items():
        left = sketch.epsilon / (count / len(seen) + sketch.epsilon)
        beyond += abs(sketch.estimate(item) - cost_s[item]) > left * 0.063 + 1e-9
    assert beyond <= sketch.delta * len(counts)


def test_an_item_shares_a_cell_with_a_frequent_one_in_every_row_as_rarely_as_rows_allow() -> None:
    # The worst that can be: nineteen items have nearly all records, each more than epsilon of them.
    rare = [b"rare %d" % n for n in range(12)]
    over = far_off = 0
    for seed in range(200):
        sketch = CostSketch(0.05, 0.1, seed=seed)
        for n in range(19):
            sketch.update(b"%d" % n, 52 * 0.064, records=52)
        for item in rare:
            sketch.update(item, 0.001)
        over += sum(sketch.count(item) - 1 > 0.05 * 1000 for item in rare)
        far_off += sum(sketch.estimate(item) > 0.5 * 0.064 for item in rare)
    # The textbook's bound for four rows. It is 21 of 2,400; with three rows it would be 70.
    assert 0 < over == far_off < math.exp(-4) * 200 * len(rare)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_estimates_of_all_but_the_lightest_records_are_mostly_within_20_percent(
    exponent: float,
) -> None:
    chance = random.Random(1)
    cost_s = {b"%d" % n: chance.randint(1, 64) / 1000 for n in range(4096)}
    learnt = zipf_items(2, exponent, distinct=4096, count=12_000)
    asked = zipf_items(3, exponent, distinct=4096, count=4000)
    sketch = sketch_of([(item, cost_s[item]) for item in learnt], epsilon=0.001)
    heaviest = sorted(asked, key=cost_s.__getitem__)[len(asked) // 10 :]
    errors = sorted(abs(sketch.estimate(item) / cost_s[item] - 1) for item in heaviest)
    assert errors[len(errors) // 2] <= 0.20


def test_it_takes_as_much_memory_for_a_thousand_items_as_for_a_million() -> None:
    sketch = CostSketch(0.5, 0.5, seed=7)
    sizes = []
    for n in range(1_000_000):
        sketch.update(n.to_bytes(4, "little"), 0.001)
        if n in (999, 999_999):
            sizes.append(size_in_memory(sketch))
    # The sums of all records are numbers with more digits in the end.
    assert sizes[1] - sizes[0] < 32
    assert len(sketch.to_bytes()) == len(CostSketch(0.5, 0.5, seed=7).to_bytes())


@given(st.lists(records, min_size=1, max_size=4), seeds)
def test_merged_sketches_are_the_sketch_of_all_records_in_any_order(
    parts: list[list[Record]], seed: int
) -> None:
    union = sketch_of([record for part in parts for record in part], seed=seed).to_bytes()
    for order in (parts, parts[::-1]):
        sketch, *others = (sketch_of(part, seed=seed) for part in order)
        kept = [other.to_bytes() for other in others]
        sketch.merge(*others)
        assert sketch.to_bytes() == union
        assert [other.to_bytes() for other in others] == kept


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("epsilon", CostSketch(0.04, 0.1, seed=7)),
        ("delta", CostSketch(0.05, 0.2, seed=7)),
        ("seed", CostSketch(0.05, 0.1, seed=8)),
    ],
)
def test_sketches_that_hash_differently_are_not_merged(field: str, other: CostSketch) -> None:
    with pytest.raises(InvalidInputError, match=f"{field}: .* cannot be merged"):
        CostSketch(0.05, 0.1, seed=7).merge(other)


@given(records, seeds)
def test_what_is_read_back_is_what_was_written(seen: list[Record], seed: int) -> None:
    sketch = sketch_of(seen, seed=seed)
    read = CostSketch.from_bytes(sketch.to_bytes())
    assert read.to_bytes() == sketch.to_bytes()
    assert read.records == len(seen)
    assert read.mean_cost_s == sketch.mean_cost_s
    for item in {item for item, _ in seen} | {b"never"}:
        assert read.estimate(item) == sketch.estimate(item)


def test_cells_of_another_shape_are_refused() -> None:
    sketch = sketch_of([(b"a", 1.0), (b"b", 2.0)])
    counts, costs_ns = bytes(sketch.counts), bytes(sketch.costs_ns)
    assert sketch.with_cells(counts, costs_ns).to_bytes() == sketch.to_bytes()
    for wrong in ((counts[8:], costs_ns), (counts, costs_ns[8:]), (counts[1:], costs_ns[1:])):
        with pytest.raises(InvalidInputError, match=r"counts: .* has 220 cells"):
            sketch.with_cells(*wrong)


@given(records, seeds)
def test_numpy_reads_the_matrices_and_estimates_the_same(seen: list[Record], seed: int) -> None:
    sketch = sketch_of(seen, seed=seed)
    cells = sketch.rows * sketch.columns
    counts, costs_ns = (np.frombuffer(each, np.int64) for each in (sketch.counts, sketch.costs_ns))
    written = np.frombuffer(sketch.to_bytes()[-16 * cells :], "<i8")
    assert written.tolist() == [*counts.tolist(), *costs_ns.tolist()]
    assert counts.reshape(sketch.rows, sketch.columns).sum(1).tolist() == [len(seen)] * sketch.rows
    for item, _ in seen:
        of_item = np.array(sketch.locate(item))
        least = of_item[counts[of_item].argmin()]
        assert sketch.estimate(item) == costs_ns[least] / counts[least] / 1e9
    means = np.divide(costs_ns, counts, out=np.zeros(cells), where=counts > 0)
    assert list_means(sketch).tolist() == means.tolist()


def test_bytes_that_are_no_sketch_or_were_damaged_are_refused() -> None:
    data = sketch_of([(b"a", 1.0), (b"b", 2.0)]).to_bytes()
    damaged = data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]
    former = b"OSG1" + data[4:]  # its cells are hashed otherwise
    for wrong in (b"", data[:4], former, bytes(len(data)), data[:-1], data + b"\0", damaged):
        with pytest.raises(InvalidInputError, match="data: "):
            CostSketch.from_bytes(wrong)


def test_mean_costs_are_listed_for_every_cell() -> None:
    sketch = sketch_of([(b"a", 0.001), (b"a", 0.003)])
    means = list_means(sketch)
    assert len(means) == sketch.rows * sketch.columns
    assert [means[cell] for cell in sketch.locate(b"a")] == [2e6] * sketch.rows
    assert sum(means) == 2e6 * sketch.rows


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=30))
def test_what_stays_has_not_changed(means: list[float]) -> None:
    assert measure_change(means, means) == 0.0


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=30), st.data())
def test_a_change_of_any_cell_is_seen(means: list[float], data: st.DataObject) -> None:
    cell = data.draw(st.integers(0, len(means) - 1))
    before = [*means]
    before[cell] += 1.0
    assert measure_change(before, means) == pytest.approx(1 / math.fsum(means), rel=1e-6)


def test_records_counted_at_once_are_as_if_counted_one_by_one() -> None:
    at_once, one_by_one = CostSketch(0.05, 0.1, seed=7), CostSketch(0.05, 0.1, seed=7)
    at_once.update(b"text", 3.0, records=3)
    for _ in range(3):
        one_by_one.update(b"text", 1.0)
    assert at_once.to_bytes() == one_by_one.to_bytes()


def test_no_records_are_refused_and_nothing_is_counted() -> None:
    sketch = CostSketch(0.05, 0.1, seed=7)
    with pytest.raises(InvalidInputError, match="records: must be at least 1"):
        sketch.update(b"text", 1.0, records=0)
    assert sketch.records == 0
    assert not any(sketch.costs_ns)


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_pickled_sketch_is_the_same(dumps: Callable[[CostSketch], bytes]) -> None:
    sketch = sketch_of([(b"text", 1.0)])
    assert pickle.loads(dumps(sketch)).to_bytes() == sketch.to_bytes()  # noqa: S301
