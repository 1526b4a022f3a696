"""Scrapes may be rare or late: what they show is measured, and decided on, all the same.

Minutes of scrapes are written into Prometheus' storage by its own tool, and it is asked about them
as it would have been then.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from programs import PROMETHEUS, find_tool
from real_prometheus import run_prometheus
from scraped_driver import COSTS_S, STREAM, Driver, check

from balancedstream.core.decisions import Decision
from balancedstream.core.past import Past
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.observe.prometheus import Prometheus
from balancedstream_operator.plan.planner import DecisionInput, choose_plan

POLICY = Policy(scaling=ScalingPolicy(min_executors=1, max_executors=2))
BEGIN_S = 1_700_000_000
END_S = BEGIN_S + 780
BATCH_S = 10
EVERY_S = [1, 5, 15, 60]
"""Seconds from one scrape to the next; each of these drivers is a stream of its own."""


def subject_of(every_s: int, stale_after_s: float | None = None) -> Subject:
    return Subject(f"{STREAM}-{every_s}", stale_after_s=stale_after_s)


def write_scrapes(every_s: int) -> Iterator[str]:
    driver = Driver(subject_of(every_s).stream)
    for at_s in range(BEGIN_S, END_S + 1, every_s):
        while (ends_s := BEGIN_S + BATCH_S * (driver.batch + 1) - 3) <= at_s:
            driver.finish_batch(ends_s)
        yield from driver.write_scrape(at_s)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("history")
    lines = [line for every_s in EVERY_S for line in write_scrapes(every_s)]
    (folder / "history").write_text("\n".join([*lines, "# EOF\n"]), "utf-8")
    promtool = find_tool("promtool", PROMETHEUS)
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", "history", "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with run_prometheus(folder, {}) as url:
        yield Prometheus(Endpoint(url), AnswerBudgets())


def decide(found: Measurement) -> Decision:
    given = DecisionInput(plan=None, past=Past(2))
    decision = choose_plan(found, POLICY, given, 1).decision
    # Of older batches, fewer are known by then, so that their costs differ a little.
    return replace(decision, scaling=replace(decision.scaling, growth={}, demands=()))


@pytest.mark.parametrize("every_s", EVERY_S)
def test_whatever_the_rhythm_of_scrapes_the_last_minutes_are_measured(
    prometheus: Prometheus, every_s: int
) -> None:
    for now_s in range(BEGIN_S + 540, END_S, 17):
        found = prometheus.observe(subject_of(every_s), POLICY, now_s + 0.5)
        check(found)
        scraped_s = now_s - (now_s - BEGIN_S) % every_s
        last = (scraped_s - BEGIN_S + 3) // BATCH_S - 1
        assert (found.scraped_s, found.last_batches) == (scraped_s, {"q": last})
        numbers = [batch.batch for batch in found.batches]
        assert numbers == list(range(numbers[0], last + 1))
        assert len(numbers) * BATCH_S >= POLICY.scaling.window_s
        decision = decide(found)
        assert decision.loads["q", 0].busy_s == COSTS_S
        assert len(decision.loads["q", 0].batches) >= 2
        # Both executors are idle for most of the time.
        assert (decision.scaling.executors, decision.scaling.verdict) == (1, Verdict.SURPLUS)


@pytest.mark.parametrize(
    ("late_s", "stale_after_s"), [(30, None), (100, 150), (500, 600), (3_000, 3_600)]
)
def test_samples_that_arrive_late_are_decided_on_as_if_they_had_come_at_once(
    prometheus: Prometheus, late_s: float, stale_after_s: float | None
) -> None:
    prompt = prometheus.observe(subject_of(15), POLICY, END_S + 1.0)
    late = prometheus.observe(subject_of(15, stale_after_s), POLICY, END_S + 1.0 + late_s)
    assert decide(late) == decide(prompt)
    assert decide(late).loads["q", 0].busy_s == COSTS_S
    assert decide(late).scaling.verdict is Verdict.SURPLUS


@pytest.mark.parametrize(("late_s", "stale_after_s"), [(60, None), (160, 150), (700, 600)])
def test_samples_that_are_later_than_the_spec_allows_are_missing(
    prometheus: Prometheus, late_s: float, stale_after_s: float | None
) -> None:
    with pytest.raises(MissingMeasurementsError, match=f"is {late_s} s old"):
        prometheus.observe(subject_of(15, stale_after_s), POLICY, END_S + late_s)
