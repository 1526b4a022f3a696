"""What the operator reads of all tasks of a query, of its driver, and of a query that waits."""

from __future__ import annotations

from typing import Any

import pytest
from metric_samples import batch_of, stage_of
from scraped import Scrapes

from balancedstream.metrics.exporter import Exporter

EXECUTORS = {"1": 1, "2": 1}


def tell(
    exporter: Exporter, number: int, busy_s: dict[str, float], executors: dict[str, int]
) -> None:
    batch = batch_of(number, interval_s=5.0, trigger_s=5.0, planning_s=0.5, gaps_s=0.25)
    exporter.on_batch(batch, [], executors, [stage_of("source", busy_s, tasks=6)])


def test_a_stateless_query_is_measured_by_its_stages() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    tell(exporter, 0, {"1": 9.0, "2": 9.0}, EXECUTORS)
    scrapes.scrape(exporter, 100.0)
    tell(exporter, 1, {"1": 1.0, "2": 3.0}, EXECUTORS)
    tell(exporter, 2, {"1": 2.0, "2": 5.0}, EXECUTORS)
    scrapes.scrape(exporter, 110.0)
    (stage,) = scrapes.measure(110.0).stages
    assert (stage.query, stage.batch, stage.kind) == ("q", 2, "source")
    assert (stage.tasks, stage.longest_s, stage.finished_s) == (6, 4.0, 110.0)
    assert stage.executor_busy_s == pytest.approx({"1": 1.5, "2": 4.0})


def test_the_trigger_interval_and_the_time_of_the_driver_belong_to_the_batches() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    for number in range(2):
        tell(exporter, number, {"1": 1.0}, EXECUTORS)
        scrapes.scrape(exporter, 100.0 + number)
    (batch,) = scrapes.measure(101.0).batches
    assert (batch.trigger_s, batch.planning_s, batch.gaps_s) == (5.0, 0.5, 0.25)
    assert batch.driver_s == 0.75


def test_an_executor_that_is_new_counts_from_nothing() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    tell(exporter, 0, {"1": 9.0}, {"1": 1})
    scrapes.scrape(exporter, 100.0)
    tell(exporter, 1, {"1": 1.0, "3": 4.0}, {"1": 1, "3": 1})
    scrapes.scrape(exporter, 110.0)
    (stage,) = scrapes.measure(110.0).stages
    assert stage.executor_busy_s == pytest.approx({"1": 1.0, "3": 4.0})


def test_batches_in_which_an_executor_left_say_nothing_for_its_part_is_not_known() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    tell(exporter, 0, {"1": 9.0, "2": 9.0}, EXECUTORS)
    scrapes.scrape(exporter, 100.0)
    tell(exporter, 1, {"1": 1.0}, {"1": 1})
    scrapes.scrape(exporter, 110.0)
    assert scrapes.measure(110.0).stages == ()
    tell(exporter, 2, {"1": 5.0}, {"1": 1})
    scrapes.scrape(exporter, 120.0)
    (stage,) = scrapes.measure(120.0).stages
    assert (stage.batch, stage.executor_busy_s) == (2, {"1": 5.0})


def test_what_lies_before_the_stages_that_were_fetched_is_not_taken_for_new() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    for number in range(4):
        tell(exporter, number, {"1": 1.0}, EXECUTORS)
        scrapes.scrape(exporter, 100.0 + 10.0 * number)
    found = scrapes.measure(130.0, stages_since_s=115.0)
    assert [b.batch for b in found.batches] == [1, 2, 3]
    assert [(s.batch, s.executor_busy_s) for s in found.stages] == [(3, {"1": 1.0})]


def test_a_query_that_waits_for_data_says_since_when() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    tell(exporter, 0, {"1": 1.0}, EXECUTORS)
    exporter.on_idle("q", 1234.5)
    scrapes.scrape(exporter, 1300.0)
    assert scrapes.measure(1300.0).idle_s == {"q": 1234.5}


def test_a_kind_of_stage_that_a_newer_driver_reports_is_left_out() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    for number in range(2):
        tell(exporter, number, {"1": 1.0}, EXECUTORS)
        newer: Any = "gpu"
        exporter.on_batch(batch_of(number), [], EXECUTORS, [stage_of(newer)])
        scrapes.scrape(exporter, 100.0 + number)
    assert {stage.kind for stage in scrapes.measure(101.0).stages} == {"source"}
