"""What the operator reads of queries whose tasks run as long as their batches."""

from __future__ import annotations

from metric_samples import batch_of, stage_of
from scraped import Scrapes

from balancedstream.core.samples import SlotHolder
from balancedstream.metrics.exporter import Exporter


def test_a_query_in_real_time_mode_is_known_by_its_slots_and_by_no_batch() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    live = SlotHolder("live", "real-time", 3, {"1": 2, "2": 1})
    exporter.on_holders([live])
    for number in range(3):
        exporter.on_batch(batch_of(number, query="live"), [], {"1": 4, "2": 4})
        exporter.on_batch(batch_of(number), [], {"1": 4, "2": 4}, [stage_of("source", {"1": 1.0})])
        scrapes.scrape(exporter, 100.0 + number)
    measured = scrapes.measure(102.0)
    assert measured.holders == (live,)
    assert {batch.query for batch in measured.batches} == {"q"}
    assert measured.last_batches["live"] == 2, "people want to see how far it is"


def test_what_is_not_known_yet_is_none_and_a_query_that_ended_holds_nothing() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    exporter.on_holders([SlotHolder("live", "continuous", None)])
    scrapes.scrape(exporter, 100.0)
    assert scrapes.measure(100.0).holders == (SlotHolder("live", "continuous", None),)
    exporter.on_holders([])
    for at_s in (110.0, 120.0):
        scrapes.scrape(exporter, at_s)
    assert scrapes.measure(120.0).holders == ()


def test_slots_that_move_to_another_executor_cost_no_scrape() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    for at_s, executor in ((100.0, "1"), (110.0, "2")):
        exporter.on_holders([SlotHolder("live", "real-time", 1, {executor: 1})])
        scrapes.scrape(exporter, at_s)
    measured = scrapes.measure(110.0)
    assert (measured.scraped_s, measured.holders[0].held) == (110.0, {"2": 1})
