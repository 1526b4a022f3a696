"""The operator reads of memory what the driver measured: both decide on the same."""

from __future__ import annotations

from metric_samples import batch_of, task_of
from scraped import Scrapes

from balancedstream.core.memory.use import ExecutorMemory, Memory, MemoryLimits, StateReads
from balancedstream.core.samples import StoreSample
from balancedstream.metrics.exporter import Exporter

EXECUTORS = {"0": 1, "1": 1}
MEMORY = Memory(
    (ExecutorMemory("0", 1.0, 2.0, 3.0, 4.0, 15.0, 60.0), ExecutorMemory("1", 7.0)),
    MemoryLimits(20.0, 10.0, 5.0),
    (
        StateReads("q", 0, 7e-5, 1e-5, 1.5, 4.0, 14.0),
        StateReads("q", 2, 1e-5, 1e-5, 0.0, 0.0, 14.0),
    ),
    growth=0.25,
)


def scrape(memory: Memory, executors: dict[str, int], *, batches: int = 2) -> Memory:
    """What is measured of a driver that has told of this memory."""
    exporter, scrapes = Exporter(), Scrapes()
    for number in range(batches):
        exporter.on_batch(batch_of(number), [task_of(0, "0"), task_of(1, "1")], executors)
        exporter.on_memory(memory, [StoreSample("q", 0, number, "0", 4)])
        scrapes.scrape(exporter, 10.0 * number)
    return scrapes.measure(10.0 * batches).memory


def test_what_the_driver_measured_is_what_the_operator_decides_on() -> None:
    assert scrape(MEMORY, EXECUTORS) == MEMORY


def test_before_the_growth_is_known_and_without_reads_the_rest_is_there() -> None:
    memory = Memory(MEMORY.executors, MEMORY.limits)
    assert scrape(memory, EXECUTORS) == memory


def test_an_executor_that_takes_no_work_is_left_out() -> None:
    assert [e.executor for e in scrape(MEMORY, {"0": 1}).executors] == ["0"]


def test_a_driver_that_tells_nothing_of_memory_is_measured_all_the_same() -> None:
    assert scrape(Memory(), EXECUTORS) == Memory()


def test_series_that_begin_or_end_between_two_scrapes_cost_no_scrape() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    for number, memory in enumerate((Memory(), MEMORY, Memory(MEMORY.executors, MEMORY.limits))):
        exporter.on_batch(batch_of(number), [task_of(0, "0")], EXECUTORS)
        exporter.on_memory(memory, [])
        scrapes.scrape(exporter, 10.0 * number)
        measurement = scrapes.measure(10.0 * number + 1.0)
        assert measurement.scraped_s == 10.0 * number
        assert measurement.memory.executors == memory.executors
