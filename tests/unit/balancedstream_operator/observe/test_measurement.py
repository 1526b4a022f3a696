"""Scrapes of Prometheus become exactly what the core decides on.

The scrapes are of a real exporter, which gets batches at given times.
"""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from scraped import Scrapes

from balancedstream.core.balance.loads import measure as measure_loads
from balancedstream.core.balance.loads import prune
from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.policy import Policy, ScalingPolicy, WindowPolicy
from balancedstream.core.samples import BatchSample, ShuffleRecord, TaskSample
from balancedstream.core.wire.series import BATCH_DURATION
from balancedstream.metrics.catalogue import SERIES_PER_PARTITION
from balancedstream.metrics.exporter import Exporter
from balancedstream_operator.api.status import LoadedAhead, Preparations
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.measurement import (
    QUERY_METRICS,
    Measurement,
    ShuffleSample,
    measure,
)

STREAM = "default/clicks"


def batch(
    number: int, started_s: float, *, duration_s: float = 2.0, rows: int = 100, backlog: float = 0.0
) -> BatchSample:
    return BatchSample("q", number, started_s + duration_s, duration_s, rows, 5.0, backlog)


def task(
    partition: int, executor: str, busy_s: float, *, restore_s: float = 0.0, records: int = 10
) -> TaskSample:
    return TaskSample("q", 0, partition, 0, executor, busy_s, records, 1000, 0.0, restore_s)


def tell(exporter: Exporter, sample: BatchSample, *tasks: TaskSample) -> None:
    exporter.on_batch(sample, tasks, {"1": 1, "2": 1})


def test_the_longest_batch_is_known_whether_or_not_it_was_the_last() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    for number, duration_s in enumerate((2.0, 700.0, 3.0)):
        tell(exporter, batch(number, 1_000.0 * number, duration_s=duration_s))
        scrapes.scrape(exporter, 1_000.0 * number + 900.0)
    assert scrapes.measure(2_905.0).longest_s == {"q": 700.0}
    tell(exporter, batch(3, 3_000.0, duration_s=800.0))
    scrapes.scrape(exporter, 3_900.0)
    assert scrapes.measure(3_905.0).longest_s == {"q": 800.0}


def test_one_batch_between_two_scrapes_is_that_batch() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    tell(exporter, batch(6, 100.0), task(0, "1", 9.0), task(1, "2", 9.0))
    scrapes.scrape(exporter, 103.0)
    tell(
        exporter,
        batch(7, 105.0, duration_s=3.0, rows=70, backlog=40.0),
        task(0, "1", 1.5),
        task(1, "1", 0.5, restore_s=0.25),
    )
    exporter.on_epoch(4)
    scrapes.scrape(exporter, 109.0)
    found = scrapes.measure(110.0)
    assert found.scraped_s == 109.0
    assert found.epoch == 4
    assert found.executors == {"1": 1, "2": 1}
    assert found.last_batches == {"q": 7}
    assert found.batches == (
        BatchSample("q", 7, 108.0, 3.0, 70, pytest.approx(5.0), pytest.approx(40.0)),  # type: ignore[arg-type]
    )
    assert [(t.partition, t.executor, t.batch) for t in found.tasks] == [(0, "1", 7), (1, "1", 7)]
    assert [t.busy_s for t in found.tasks] == pytest.approx([1.5, 0.5])
    assert [t.restore_s for t in found.tasks] == pytest.approx([0.0, 0.25])
    assert [t.moved for t in found.tasks] == [False, True]
    assert [t.state_bytes for t in found.tasks] == [1000, 1000]


def test_batches_take_as_long_where_prometheus_turns_histograms_into_native_ones() -> None:
    # prometheus/prometheus#14978: then `_sum` and `_count` are no series any more. All batches
    # seemed to take no time, so that executors seemed to be too many.
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    for number in range(4):
        tell(exporter, batch(number, 10.0 * number, duration_s=8.0))
        scrapes.scrape(exporter, 10.0 * number + 9.0)
    kept = [m for m in QUERY_METRICS if not m.startswith(f"{BATCH_DURATION}_")]
    found = measure(scrapes.select(tuple(kept)), [], 40.0)
    assert [sample.duration_s for sample in found.batches] == [8.0] * 3
    assert found.batches == scrapes.measure(40.0).batches


def test_the_first_scrape_is_only_a_baseline() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    tell(exporter, batch(0, 100.0), task(0, "1", 30.0))
    scrapes.scrape(exporter, 103.0)
    found = scrapes.measure(104.0)
    assert (found.tasks, found.batches) == ((), ())
    assert found.executors == {"1": 1, "2": 1}


def test_several_batches_between_two_scrapes_are_their_mean_and_add_up_to_what_was_read() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    tell(exporter, batch(0, 100.0), task(0, "1", 9.0))
    scrapes.scrape(exporter, 103.0)
    for number, rows, busy_s, waiting in (
        (1, 10, 1.0, 30.0),
        (2, 11, 2.0, 60.0),
        (3, 10, 3.0, 90.0),
    ):
        sample = batch(number, 100.0 + 5 * number, rows=rows, backlog=waiting)
        tell(exporter, sample, task(0, "1", busy_s))
    scrapes.scrape(exporter, 118.0)
    found = scrapes.measure(118.0)
    assert [b.batch for b in found.batches] == [1, 2, 3]
    assert sum(b.input_rows for b in found.batches) == 31
    assert [b.finished_s for b in found.batches] == pytest.approx([107.0, 112.0, 117.0])
    assert [b.interval_s for b in found.batches] == pytest.approx([5.0, 5.0, 5.0])
    assert [b.backlog_rows for b in found.batches] == pytest.approx([30.0, 60.0, 90.0])
    (mean,) = found.tasks
    assert mean.batch == 3
    assert mean.busy_s == pytest.approx(2.0)


def test_scrapes_without_a_new_batch_add_nothing() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    for number in (0, 1):
        tell(exporter, batch(number, 100.0 + 30 * number), task(0, "1", 1.0))
        for at_s in range(3, 30, 5):
            scrapes.scrape(exporter, 100.0 + 30 * number + at_s)
    found = scrapes.measure(160.0)
    assert [b.batch for b in found.batches] == [1]
    assert found.batches[0].interval_s == pytest.approx(30.0)


def test_the_last_batch_is_known_however_long_ago_it_finished() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    tell(exporter, batch(6, 100.0), task(0, "1", 9.0))
    tell(exporter, batch(7, 105.0, backlog=40.0), task(0, "1", 1.5))
    for at_s in (900.0, 915.0):
        scrapes.scrape(exporter, at_s)
    found = scrapes.measure(916.0)
    assert not found.batches, "none of them is in an interval"
    assert found.finished_s == {"q": 107.0}
    assert found.backlog_rows == {"q": 40.0}


def test_of_a_query_that_waits_for_data_the_last_batch_is_measured() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    tell(exporter, batch(7, 105.0, backlog=40.0), task(0, "1", 1.5))
    for at_s in (900.0, 915.0):
        exporter.on_idle("q", at_s - 4.0)
        scrapes.scrape(exporter, at_s)
    (last,) = scrapes.measure(916.0).batches
    assert (last.batch, last.finished_s, last.input_rows, last.interval_s) == (7, 107.0, 0, None)


def test_a_query_that_never_had_data_has_waited_since_it_was_seen_first() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    for at_s in (600.0, 615.0, 900.0):
        exporter.on_idle("q", at_s - 4.0)
        scrapes.scrape(exporter, at_s)
    (last,) = scrapes.measure(901.0).batches
    assert (last.finished_s, last.input_rows) == (596.0, 0)


def test_a_driver_that_was_restarted_begins_anew_and_its_predecessor_is_forgotten() -> None:
    scrapes = Scrapes()
    for instance, first in (("10.0.0.7:9404", 0), ("10.0.0.8:9404", 3)):
        exporter = Exporter(stream=STREAM)
        for number in range(first, first + 3):
            tell(exporter, batch(number, 100.0 + 10 * number), task(0, "1", 1.0))
            scrapes.scrape(exporter, 105.0 + 10 * number, instance)
    found = scrapes.measure(156.0)
    assert [b.batch for b in found.batches] == [4, 5]


def test_a_driver_that_was_restarted_in_its_pod_begins_anew() -> None:
    scrapes = Scrapes()
    for first in (0, 4):
        exporter = Exporter(stream=STREAM)
        for number in range(first, first + 3):
            tell(exporter, batch(number, 100.0 + 10 * number), task(0, "1", 1.0))
            scrapes.scrape(exporter, 105.0 + 10 * number)
    found = scrapes.measure(166.0)
    assert [b.batch for b in found.batches] == [5, 6]
    assert all(t.busy_s == pytest.approx(1.0) for t in found.tasks)


def test_an_executor_that_left_is_not_there_any_more() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    tell(exporter, batch(0, 100.0), task(0, "1", 1.0))
    scrapes.scrape(exporter, 103.0)
    exporter.on_batch(batch(1, 105.0), [task(0, "2", 1.0)], {"2": 4})
    scrapes.scrape(exporter, 108.0)
    found = scrapes.measure(109.0)
    assert found.executors == {"2": 4}
    assert [t.executor for t in found.tasks] == ["2"]


def test_executors_are_lost_by_their_cause_also_when_the_driver_begins_anew() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    exporter.on_loss("memory")
    tell(exporter, batch(0, 0.0))
    scrapes.scrape(exporter, 10.0)
    for _ in range(2):
        exporter.on_loss("memory")
    exporter.on_loss("silence")
    scrapes.scrape(exporter, 20.0)
    exporter = Exporter(stream=STREAM)
    exporter.on_loss("memory")
    scrapes.scrape(exporter, 30.0)
    lost = {"memory": 3, "heap": 0, "exit": 0, "silence": 1}
    assert scrapes.measure(31.0).losses == lost
    assert scrapes.measure(31.0, since_s=30.0).losses == dict.fromkeys(lost, 0)


@pytest.mark.parametrize(
    ("now_s", "stale"), [(132.0, False), (137.0, False), (162.0, True), (900.0, True)]
)
def test_old_scrapes_are_missing_measurements(now_s: float, stale: bool) -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    for at_s in (100.0, 110.0, 120.0, 130.0):
        scrapes.scrape(exporter, at_s)
    if not stale:
        scrapes.measure(now_s)
        return
    with pytest.raises(MissingMeasurementsError, match="old"):
        scrapes.measure(now_s)


def test_nothing_scraped_is_a_missing_measurement_that_says_what_to_look_at() -> None:
    with pytest.raises(
        MissingMeasurementsError, match="check that its driver runs, and that Prometheus scrapes it"
    ):
        measure([], [], 100.0)


def test_moves_under_way_and_their_cost_are_read() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    tell(exporter, batch(0, 100.0), task(0, "1", 1.0))
    exporter.on_moves_under_way({("q", 0): 3})
    cost = RestoreCost(fixed_s=0.25, bytes_per_s=3e6, key_s=0.125)
    exporter.on_restore_cost(cost)
    scrapes.scrape(exporter, 103.0)
    assert scrapes.measure(104.0).prepared == ()
    exporter.on_moves_prepared({("q", 0): 2})
    scrapes.scrape(exporter, 105.0)
    found = scrapes.measure(106.0)
    assert (found.prepared, found.preparing) == ((("q", 0),), 2)
    assert found.under_way == {("q", 0): 3}
    assert found.restore_cost == cost


def test_what_was_loaded_ahead_of_moves_is_read() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    tell(exporter, batch(0, 100.0), task(0, "1", 1.0))
    exporter.on_preparation("used", 1000, 2.5)
    exporter.on_preparation("used", 500, 0.5004)
    scrapes.scrape(exporter, 103.0)
    assert scrapes.measure(104.0).preparations == Preparations(
        used=LoadedAhead(moves=2, state_bytes=1500, seconds=3.0),
        wasted=LoadedAhead(),
        failed=LoadedAhead(),
    )


def test_shuffles_are_told_as_the_newest_scrape_has_them() -> None:
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()

    def shuffled(name: str, errors: tuple[float, float] | None, *, trusted: bool = False) -> None:
        restore_s = (1.0, 2.0)
        error, equal_error = errors or (None, None)
        record = ShuffleRecord(
            0.0, name, 0, 64, False, restore_s, restore_s, error, equal_error, trusted, "measured"
        )
        exporter.on_shuffle(record)

    tell(exporter, batch(0, 100.0), task(0, "1", 1.0))
    scrapes.scrape(exporter, 103.0)
    assert scrapes.measure(104.0).shuffles == ()
    shuffled("label-by-kind", None)
    scrapes.scrape(exporter, 108.0)
    assert scrapes.measure(109.0).shuffles == (
        ShuffleSample("label-by-kind", False, 0, None, None),
    )
    for errors in ((0.6, 0.5), (0.7, 0.5)):
        shuffled("label-by-kind", errors)
    shuffled("a-by-b", (0.1, 0.5), trusted=True)
    scrapes.scrape(exporter, 113.0)
    assert scrapes.measure(114.0).shuffles == (
        ShuffleSample("a-by-b", True, 0, 0.1, 0.5),
        ShuffleSample("label-by-kind", False, 2, 0.7, 0.5),
    )


def test_whatever_the_rhythm_of_scrapes_all_work_is_counted_once() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    exporter, scrapes = Exporter(stream=STREAM), Scrapes()
    rows, busy_s, now_s, counted_from = [], [], 100.0, None
    for number in range(60):
        rows.append(chance.randrange(1000))
        busy_s.append([chance.uniform(0, 5) for _ in range(4)])
        tell(
            exporter,
            batch(number, now_s, rows=rows[-1]),
            *(task(p, chance.choice("12"), cost) for p, cost in enumerate(busy_s[-1])),
        )
        now_s += chance.uniform(2.0, 9.0)
        if chance.random() < 0.5 or number == 59:
            scrapes.scrape(exporter, now_s)
            counted_from = number + 1 if counted_from is None else counted_from
    found = scrapes.measure(now_s)
    assert sum(b.input_rows for b in found.batches) == sum(rows[counted_from:])
    per_step: dict[int, int] = defaultdict(int)
    numbers = sorted({t.batch for t in found.tasks})
    previous = (counted_from or 0) - 1
    for number in numbers:
        per_step[number], previous = number - previous, number
    for partition in range(4):
        total = sum(t.busy_s * per_step[t.batch] for t in found.tasks if t.partition == partition)
        assert total == pytest.approx(sum(b[partition] for b in busy_s[counted_from:]))


@pytest.mark.parametrize("shown", [2, 4])
def test_intervals_before_the_window_cost_nothing_and_change_no_load(
    shown: int,
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    exporter, scrapes = Exporter(shown * SERIES_PER_PARTITION, stream=STREAM), Scrapes()
    policy = Policy(scaling=ScalingPolicy(window_s=1000.0), window=WindowPolicy(batches=3))
    now_s = 100.0
    for number in range(20):
        costs = [chance.uniform(0, 5) for _ in range(4)]
        tasks = [task(p, chance.choice("12"), cost) for p, cost in enumerate(costs)]
        tell(exporter, batch(number, now_s), *tasks)
        now_s += 5.0
        scrapes.scrape(exporter, now_s)
    full, found = scrapes.measure(now_s), scrapes.measure(now_s, newest=policy.window.batches)
    assert len(full.tasks) > len(found.tasks) > 0

    def loads(measured: Measurement) -> object:
        return measure_loads(
            measured.tasks, measured.executors, policy, now_s, hidden=measured.hidden
        )

    assert loads(found) == loads(full)
    assert prune(found.stages, policy, now_s) == prune(full.stages, policy, now_s)
    assert found.batches == full.batches
