"""What Prometheus could not scrape is not made up, and no batch is lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from loopback import serve
from patience import PATIENCE_S
from prometheus_api_client import PrometheusConnect
from real_prometheus import run_prometheus, run_victoria_metrics, scrape
from scraped_driver import Driver, has_batches, measure_until, observe_by
from waiting import wait_until

from balancedstream_operator.observe.endpoints import Subject
from balancedstream_operator.observe.measurement import Measurement

FAILING = Driver("shop/failing")
RESTARTED = Driver("shop/restarted")


@pytest.fixture(scope="module", params=["prometheus", "victoria-metrics"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    run = run_prometheus
    if request.param == "victoria-metrics":
        program: Path | None = request.config.getoption("--victoria-metrics", default=None)
        if program is None:
            pytest.skip("no program of VictoriaMetrics: see --victoria-metrics")
        run = partial(run_victoria_metrics, program.resolve())
    with serve(FAILING.answer) as failing, serve(RESTARTED.answer) as restarted:
        jobs = [scrape(failing, "failing"), scrape(restarted, "restarted")]
        with run(tmp_path_factory.mktemp("one"), {"scrape_configs": jobs}) as found:
            yield found


def test_the_batches_of_scrapes_that_failed_are_measured_with_the_next_one(url: str) -> None:
    observe = observe_by(url, Subject("shop/failing"))
    measure_until(has_batches(2), observe)
    FAILING.fails = True
    missed = FAILING.batch

    def have_some_failed() -> bool:
        return FAILING.batch > missed + 3

    wait_until("scrapes", have_some_failed, timeout_s=PATIENCE_S, interval_s=0.1)
    FAILING.fails = False
    last = FAILING.batch
    found = measure_until(lambda found: found.last_batches["q"] > last, observe)
    # VictoriaMetrics computes nothing of the last half minute, but has its samples.
    (up,) = PrometheusConnect(url).custom_query('up{job="failing"}[5m]')
    assert {value for _, value in up["values"]} == {"0", "1"}
    numbers = [batch.batch for batch in found.batches]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] < missed


def test_a_driver_that_starts_again_between_two_scrapes_begins_anew(url: str) -> None:
    observe = observe_by(url, Subject("shop/restarted"))
    measure_until(has_batches(3), observe)
    RESTARTED.restart()

    def has_begun(found: Measurement) -> bool:
        return len(found.batches) >= 2 and found.last_batches["q"] > RESTARTED.first

    found = measure_until(has_begun, observe)
    assert min(batch.batch for batch in found.batches) > RESTARTED.first, "a baseline comes first"
