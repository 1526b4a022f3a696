"""Instances that measure costs, the pace of each of them, and both with the scheduler."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shuffle_simulation.measuring import InstanceMeter, learn_paces
from shuffle_simulation.scheduling import Answer, GreedyScheduler, Marker

from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.errors import InvalidInputError


def new_sketch() -> CostSketch:
    return CostSketch(0.05, 0.1, seed=7)


def record_all(meter: InstanceMeter, records: Sequence[tuple[bytes, float]]) -> list[CostSketch]:
    sketches = [meter.record(item, cost_s) for item, cost_s in records]
    return [sketch for sketch in sketches if sketch]


def test_a_sketch_that_is_stable_after_two_windows_is_sent_and_a_new_one_begun() -> None:
    meter = InstanceMeter(new_sketch, window=10)
    (first,) = record_all(meter, [(b"a", 1.0)] * 20)
    (second,) = record_all(meter, [(b"a", 3.0)] * 20)
    assert (first.records, first.estimate(b"a")) == (20, 1.0)
    assert (second.records, second.estimate(b"a")) == (20, 3.0)


def test_a_sketch_is_not_sent_as_long_as_its_mean_costs_change() -> None:
    meter = InstanceMeter(new_sketch, window=10)
    assert record_all(meter, [(b"%d" % n, 1.0) for n in range(30)]) == []
    assert len(record_all(meter, [(b"1", 1.0)] * 10)) == 1


def test_a_change_in_any_column_keeps_a_sketch_from_being_sent() -> None:
    # The authors' code looks at as many columns as there are rows.
    for item in (b"%d" % n for n in range(50)):
        meter = InstanceMeter(new_sketch, window=10)
        assert record_all(meter, [(b"a", 1.0)] * 10 + [(item, 1.0)] * 10) == []


def test_the_change_that_is_stable_can_be_set() -> None:
    records = [(b"a", 1.0)] * 10 + [(b"a", 1.2)] * 10  # a mean of 1.1 after one of 1.0
    assert record_all(InstanceMeter(new_sketch, window=10, stable_change=0.05), records) == []
    assert record_all(InstanceMeter(new_sketch, window=10, stable_change=0.10), records) != []


def test_an_answer_is_the_summed_busy_time_less_the_estimated_load() -> None:
    meter = InstanceMeter(new_sketch)
    record_all(meter, [(b"a", 1.5), (b"b", 2.5)])
    assert meter.busy_s == 4.0
    assert meter.answer(Marker(3, 9, 5.0)) == Answer(3, 9, -1.0)


def test_a_cost_that_is_no_time_changes_nothing_at_the_instance() -> None:
    meter = InstanceMeter(new_sketch)
    with pytest.raises(InvalidInputError, match="cost_s"):
        meter.record(b"a", math.nan)
    assert meter.busy_s == 0.0


def test_a_meter_without_window_or_with_a_negative_change_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="window: must be at least 1"):
        InstanceMeter(new_sketch, window=0)
    for change in (-0.1, math.nan):
        with pytest.raises(InvalidInputError, match="stable_change: must be 0 or more"):
            InstanceMeter(new_sketch, stable_change=change)


WINDOW = 64

COUNT = 4


class Run:
    """Records of random cost run at once; instance 0 takes `slowdown` times as long."""

    def __init__(self, *, synced: bool) -> None:
        self.slowdown = 1.0
        self.share: list[float] = []
        self.drift_s: list[float] = []
        self._synced = synced
        self._chance = random.Random(5)
        self._scheduler = GreedyScheduler[bytes](COUNT, window=WINDOW)
        self._meters = [InstanceMeter(new_sketch, window=WINDOW) for _ in range(COUNT)]

    def run_window(self) -> None:
        """As many records as are between two syncs."""
        mine = 0
        for _ in range(WINDOW * COUNT):
            level = self._chance.randrange(8)
            item, cost_s = b"%d" % level, (level + 1) / 1000
            instance, marker = self._scheduler.assign(item)
            mine += instance == 0
            meter = self._meters[instance]
            sketch = meter.record(item, cost_s * (self.slowdown if instance == 0 else 1.0))
            if marker and self._synced:
                self._scheduler.accept_answer(meter.answer(marker))
            if sketch and self.slowdown == 1.0:
                self._scheduler.accept_estimates(instance, sketch)
        self.share.append(mine / (WINDOW * COUNT))
        loads_s = self._scheduler.loads_s
        off_s = [loads_s[instance] - meter.busy_s for instance, meter in enumerate(self._meters)]
        self.drift_s.append(max(off_s) - min(off_s))


def run_slowed(*, synced: bool) -> Run:
    """Eight windows at full speed and eight with a slow instance whose estimates stay as before."""
    run = Run(synced=synced)
    for _ in range(8):
        run.run_window()
    run.slowdown = 2.0
    for _ in range(8):
        run.run_window()
    return run


def test_the_share_of_an_instance_slowed_twofold_halves_in_the_two_windows_after() -> None:
    share = run_slowed(synced=True).share
    ideal = 1 / (2 * COUNT - 1)
    assert share[7] == pytest.approx(1 / COUNT, abs=0.03)
    # A window sees only at its end what it has done to the slow instance, so they alternate.
    assert fmean(share[9:11]) == pytest.approx(ideal, abs=0.03)
    assert fmean(share[9:]) == pytest.approx(ideal, abs=0.03)


def test_each_sync_brings_estimated_and_real_loads_together_again() -> None:
    drift_s = run_slowed(synced=True).drift_s
    assert max(drift_s[9:]) < drift_s[8]
    assert max(drift_s[13:]) < max(drift_s[9:13])


def test_without_answers_the_estimated_loads_drift_away_from_the_real_ones() -> None:
    deaf = run_slowed(synced=False)
    assert all(before < after for before, after in itertools.pairwise(deaf.drift_s[8:]))
    assert deaf.drift_s[-1] > 10 * run_slowed(synced=True).drift_s[-1]
    assert deaf.share[-1] == pytest.approx(1 / COUNT, abs=0.02)


class ItsOwnCost:
    """Estimates for items that are their own cost in seconds."""

    def estimate(self, item: float, /) -> float:
        return item


def scheduling(instances: int, *, window: int = 1024) -> GreedyScheduler[float]:
    """A scheduler that has all estimates and is about to send its markers."""
    scheduler = GreedyScheduler[float](instances, window=window)
    for instance in range(instances):
        scheduler.accept_estimates(instance, ItsOwnCost())
    return scheduler


def test_a_slow_instance_is_known_after_one_batch() -> None:
    paces = learn_paces(
        {}, dict.fromkeys(range(5), 10.0), {0: 20.0} | dict.fromkeys(range(1, 5), 10.0)
    )
    assert paces == {0: 2.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}


def test_of_two_instances_the_one_takes_twice_as_long_as_the_other() -> None:
    paces = learn_paces({}, {0: 10.0, 1: 10.0}, {0: 20.0, 1: 10.0})
    assert paces[0] / paces[1] == 2.0


def test_a_small_difference_is_followed_slowly() -> None:
    paces: dict[int, float] = {}
    for _ in range(3):
        estimated_s = {i: 10.0 * paces.get(i, 1.0) for i in range(3)}
        paces = learn_paces(paces, estimated_s, {0: 12.0, 1: 10.0, 2: 10.0})
    assert 1.03 < paces[0] < 1.10


def test_estimates_that_are_off_for_all_alike_change_no_pace() -> None:
    before = {0: 1.0, 1: 2.0, 2: 1.0}
    estimated_s = {0: 10.0, 1: 10.0, 2: 10.0}
    assert learn_paces(before, estimated_s, dict.fromkeys(range(3), 70.0)) == before


@pytest.mark.parametrize("real_s", [0.0, 30.0])
def test_nothing_is_learnt_of_an_instance_that_was_given_nothing(real_s: float) -> None:
    before = {0: 2.0, 1: 1.0, 2: 1.0}
    assert learn_paces(before, {0: 0.0, 1: 5.0, 2: 5.0}, {0: real_s, 1: 5.0, 2: 5.0}) == before


def test_nothing_is_learnt_of_an_instance_that_was_not_busy() -> None:
    before = {0: 2.0, 1: 1.0, 2: 1.0}
    for real_s in ({0: 0.0, 1: 5.0, 2: 5.0}, {1: 5.0, 2: 5.0}):
        assert learn_paces(before, dict.fromkeys(range(3), 5.0), real_s) == before


def test_an_instance_that_stood_still_for_a_batch_is_not_given_up() -> None:
    paces = learn_paces({}, {0: 1.0, 1: 1.0, 2: 1.0}, {0: 600.0, 1: 1.0, 2: 1.0})
    assert paces == {0: 10.0, 1: 1.0, 2: 1.0}
    assert learn_paces(paces, dict.fromkeys(range(3), 1.0), {0: 0.1, 1: 1.0, 2: 1.0}) == {
        0: 1.0,
        1: 1.0,
        2: 1.0,
    }


def test_paces_are_kept_of_instances_that_are_there() -> None:
    assert learn_paces({0: 2.0, 1: 1.0}, {1: 5.0, 2: 5.0}, {1: 5.0, 2: 5.0}) == {1: 1.0, 2: 1.0}


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1)
)
def test_paces_are_such_as_the_scheduler_accepts(loads_s: dict[int, tuple[float, float]]) -> None:
    estimated_s = {instance: load_s for instance, (load_s, _) in loads_s.items()}
    real_s = {instance: load_s for instance, (_, load_s) in loads_s.items()}
    for pace in learn_paces({}, estimated_s, real_s).values():
        scheduling(1).accept_estimates(0, ItsOwnCost(), pace=pace)


@pytest.mark.parametrize("load_s", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("field", ["estimated_s", "real_s"])
def test_a_load_that_is_no_time_is_refused_by_its_instance(field: str, load_s: float) -> None:
    learn: Callable[..., dict[int, float]] = learn_paces
    loads_s = {"estimated_s": {0: 1.0, 3: 1.0}, "real_s": {0: 1.0, 3: 1.0}}
    loads_s[field][3] = load_s
    with pytest.raises(InvalidInputError, match=f"{field}: instance 3"):
        learn({}, **loads_s)
