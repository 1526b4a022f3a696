"""Whatever Prometheus keeps of a driver, it is read as one driver, and nothing is made up."""

from __future__ import annotations

import random

import pytest
from scraped import Scrapes
from scraped_driver import Driver, check

from balancedstream.core.samples import BatchSample, TaskSample
from balancedstream.metrics.exporter import Exporter
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.measurement import (
    PARTITION_METRICS,
    QUERY_METRICS,
    Measurement,
    measure,
)
from balancedstream_operator.observe.series import Series


def tell(exporter: Exporter, number: int, *, busy_s: float = 1.0, rows: int = 100) -> None:
    sample = BatchSample("q", number, 102.0 + 10.0 * number, 2.0, rows, 10.0, 0.0)
    task = TaskSample("q", 0, 0, number, "1", busy_s, rows, 1000, 0.0, 0.0)
    exporter.on_batch(sample, [task], {"1": 1, "2": 1})


def tell_and_scrape(exporter: Exporter, *targets: tuple[Scrapes, float]) -> None:
    """Four batches, and after each one a scrape into each of the targets, at its own time."""
    for number in range(4):
        tell(exporter, number)
        for scrapes, late_s in targets:
            scrapes.scrape(exporter, 103.0 + 10.0 * number + late_s)


def labelled(scrapes: Scrapes, metrics: tuple[str, ...], **labels: str) -> list[Series]:
    return [Series({**s.labels, **labels}, s.samples) for s in scrapes.select(metrics)]


def measure_both(first: dict[str, str], second: dict[str, str]) -> Measurement:
    """What two copies of the same driver with these labels measure, scraped 3 s apart."""
    exporter, a, b = Exporter(stream="shop/clicks"), Scrapes(), Scrapes()
    tell_and_scrape(exporter, (a, 0.0), (b, 3.0))
    return measure(
        labelled(a, QUERY_METRICS, **first) + labelled(b, QUERY_METRICS, **second),
        labelled(a, PARTITION_METRICS, **first) + labelled(b, PARTITION_METRICS, **second),
        140.0,
    )


def drop(found: list[Series], name: str, time_s: float) -> list[Series]:
    """The series without the samples that a metric has at a time."""
    return [
        Series(s.labels, tuple(x for x in s.samples if x[0] != time_s))
        if s.labels["__name__"] == name
        else s
        for s in found
    ]


def add_target_labels(found: list[Series], **target: str) -> list[Series]:
    """The series as Prometheus keeps them of a target that has these labels."""
    return [
        Series(
            {**{f"exported_{n}" if n in target else n: s.labels[n] for n in s.labels}, **target},
            s.samples,
        )
        for s in found
    ]


def test_a_target_whose_labels_have_names_of_ours_is_measured_as_any_other() -> None:
    # prometheus-operator/prometheus-operator#356: a target's label hides the one that was served,
    # which becomes `exported_NAME`. So all executors seemed to be one.
    exporter, scrapes = Exporter(stream="shop/clicks"), Scrapes()
    tell_and_scrape(exporter, (scrapes, 0.0))
    target = {"executor": "spark", "operator": "balancedstream", "query": "node"}
    found = measure(
        add_target_labels(scrapes.select(QUERY_METRICS), **target),
        add_target_labels(scrapes.select(PARTITION_METRICS), **target),
        140.0,
    )
    assert found == scrapes.measure(140.0)
    assert found.executors == {"1": 1, "2": 1}
    assert found.tasks


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"replica": "a"}, {"replica": "b"}, id="an HA pair"),
        pytest.param({"job": "pods"}, {"job": "monitor", "endpoint": "metrics"}, id="two jobs"),
        pytest.param({}, {"replica": "b"}, id="one copy with a label more"),
    ],
)
def test_a_driver_that_is_scraped_twice_is_measured_once(
    first: dict[str, str], second: dict[str, str]
) -> None:
    found = measure_both(first, second)
    assert found.scraped_s == 136.0, "of the newest copy"
    assert [b.batch for b in found.batches] == [1, 2, 3]
    assert [t.busy_s for t in found.tasks] == [1.0, 1.0, 1.0]
    assert found.executors == {"1": 1, "2": 1}


@pytest.mark.parametrize("name", [*QUERY_METRICS, *PARTITION_METRICS])
@pytest.mark.parametrize("time_s", [103.0, 123.0, 133.0])
def test_a_missing_sample_costs_its_interval_and_makes_up_nothing(name: str, time_s: float) -> None:
    exporter, scrapes = Exporter(stream="shop/clicks"), Scrapes()
    tell_and_scrape(exporter, (scrapes, 0.0))
    found = measure(
        drop(scrapes.select(QUERY_METRICS), name, time_s),
        drop(scrapes.select(PARTITION_METRICS), name, time_s),
        134.0,
    )
    assert found.executors == {"1": 1, "2": 1}
    assert sum(b.input_rows for b in found.batches) in {100, 200, 300}
    assert {b.input_rows for b in found.batches} == {100}
    assert {b.duration_s for b in found.batches} == {2.0}
    assert {t.busy_s for t in found.tasks} == {1.0}


def test_a_value_that_is_no_number_is_a_missing_sample() -> None:
    exporter, scrapes = Exporter(stream="shop/clicks"), Scrapes()
    tell_and_scrape(exporter, (scrapes, 0.0))
    marked = [
        Series(s.labels, (*s.samples, (143.0, float("nan")))) for s in scrapes.select(QUERY_METRICS)
    ]
    assert measure(marked, [], 144.0).scraped_s == 133.0


def test_executors_of_which_every_scrape_misses_one_are_a_missing_measurement() -> None:
    exporter, scrapes = Exporter(stream="shop/clicks"), Scrapes()
    tell_and_scrape(exporter, (scrapes, 0.0))
    found = [s for s in scrapes.select(QUERY_METRICS) if s.labels.get("executor") != "2"]
    with pytest.raises(MissingMeasurementsError, match="misses some of its executors"):
        measure(found, [], 134.0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="every counter is higher than before"),
        pytest.param({"rows": 10}, id="rows fell"),
        pytest.param({"busy_s": 0.1}, id="busy seconds fell"),
    ],
)
def test_a_driver_that_restarted_and_counted_further_between_two_scrapes_begins_anew(
    change: dict[str, float],
) -> None:
    scrapes, before, after = Scrapes(), Exporter(stream="s"), Exporter(stream="s")
    for number in (0, 1):
        tell(before, number)
        scrapes.scrape(before, 103.0 + 10.0 * number)
    for number in range(2, 6):
        rows, busy_s = int(change.get("rows", 100)), change.get("busy_s", 1.0)
        tell(after, number, rows=rows, busy_s=busy_s)
    scrapes.scrape(after, 153.0)
    found = scrapes.measure(154.0)
    assert (found.batches, found.tasks) == ((), ()), "what was between is not known"
    tell(after, 6)
    scrapes.scrape(after, 163.0)
    assert [b.input_rows for b in scrapes.measure(164.0).batches] == [100]


@pytest.mark.parametrize("order", ["as the page has them", "in any order"])
def test_of_a_scrape_that_arrives_in_parts_nothing_is_measured_before_it_is_there(
    order: str,
) -> None:
    driver, scrapes = Driver(), Scrapes()
    for at_s in range(100, 150, 10):
        driver.finish_batch(at_s)
        scrapes.scrape(driver.exporter, at_s + 3.0)
    last_s = at_s + 3.0
    everything = scrapes.select((*QUERY_METRICS, *PARTITION_METRICS))
    if order == "in any order":
        seed = random.SystemRandom().randrange(2**32)
        print(f"seed {seed}")
        random.Random(seed).shuffle(everything)
    for count in range(len(everything)):
        there = [
            s if place < count else Series(s.labels, tuple(x for x in s.samples if x[0] < last_s))
            for place, s in enumerate(everything)
        ]
        of_queries = [s for s in there if s.labels["__name__"] in QUERY_METRICS]
        of_partitions = [s for s in there if s.labels["__name__"] not in QUERY_METRICS]
        found = measure(of_queries, of_partitions, last_s + 1.0)
        check(found)
        assert len(found.batches) >= 3
        assert len(found.tasks) >= 3 * 4
