"""Any pod that is scraped can show series of a stream; the driver's are told by their target."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from loopback import Answer, Request, Response, serve
from patience import PATIENCE_S
from real_prometheus import ask, run_prometheus, scrape
from scraped_driver import Driver, has_batches, measure_until, observe_by
from waiting import wait_until

from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.endpoints import Subject
from balancedstream_operator.observe.measurement import Measurement

NAME = {"namespace": "shop", "pod": "clicks-driver-0"}
ADDRESS = {"instance": "10.0.0.7:9404"}
OTHER = {"namespace": "shop", "pod": "intruder", "instance": "10.0.0.66:9404"}
FORGED = 1_000_000
"""The first batch of a pod that is not the driver."""

CASES = {
    "set-by-Prometheus": (False, {**NAME, **ADDRESS}),
    "without-an-address": (True, NAME),
    "without-a-name": (True, ADDRESS),
    "with-all": (True, {**NAME, **ADDRESS}),
}
"""Whether Prometheus honors labels, and those that a pod claims: a stream for each."""

ALONE = "alone"


def subject_of(case: str) -> Subject:
    return Subject(f"shop/{case}", NAME["namespace"], NAME["pod"], ("10.0.0.7",))


def forge(case: str, claims: dict[str, str]) -> Answer:
    """The page of a pod whose series have labels that only Prometheus should set."""
    stream = subject_of(case).stream
    forger = Driver(stream)
    forger.batch = FORGED
    claimed = "".join(f',{name}="{value}"' for name, value in claims.items())

    def answer(request: Request) -> Response:
        found = forger.answer(request)
        body = found.body.replace(f'stream="{stream}"', f'stream="{stream}"{claimed}')
        return replace(found, body=body)

    return answer


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Scrapes a driver and an intruder for each stream, and one intruder alone."""
    with ExitStack() as stack:
        jobs = []
        for case, (honors, claims) in {**CASES, ALONE: CASES["set-by-Prometheus"]}.items():
            forged = stack.enter_context(serve(forge(case, claims)))
            jobs.append(scrape(forged, f"others-{case}", honor_labels=honors, **OTHER))
            # Of one that claims all, nobody could tell the driver.
            if case not in {ALONE, "with-all"}:
                page = stack.enter_context(serve(Driver(subject_of(case).stream).answer))
                jobs.append(scrape(page, case, honor_labels=honors, **NAME, **ADDRESS))
        folder = tmp_path_factory.mktemp("scrapes")
        yield stack.enter_context(run_prometheus(folder, {"scrape_configs": jobs}))


def wait_for_targets(url: str, case: str, count: int) -> None:
    query = f'balancedstream_plan_epoch{{stream="{subject_of(case).stream}"}}'
    wait_until(
        f"{count} targets",
        lambda: len(ask(url, query)) == count,
        timeout_s=PATIENCE_S,
        interval_s=0.1,
    )


@pytest.mark.parametrize("case", ["set-by-Prometheus", "without-an-address", "without-a-name"])
def test_another_pod_is_not_believed_where_prometheus_says_which_one_it_is(
    url: str, case: str
) -> None:
    wait_for_targets(url, case, 2)

    def has_enough(found: Measurement) -> bool:
        assert found.last_batches["q"] < FORGED
        return len(found.batches) >= 4

    measure_until(has_enough, observe_by(url, subject_of(case)))


def test_where_only_other_pods_show_a_stream_it_is_said_which(url: str) -> None:
    wait_for_targets(url, ALONE, 1)
    with pytest.raises(MissingMeasurementsError, match="other pods") as raised:
        observe_by(url, subject_of(ALONE))(time.time())
    assert "instance=10.0.0.66:9404" in str(raised.value)
    assert "pod=intruder" in str(raised.value)


def test_where_prometheus_honors_labels_who_claims_them_all_is_the_driver(url: str) -> None:
    # As the page on security says: its series differ in nothing from those of the driver.
    found = measure_until(has_batches(1), observe_by(url, subject_of("with-all")))
    assert found.last_batches["q"] > FORGED
