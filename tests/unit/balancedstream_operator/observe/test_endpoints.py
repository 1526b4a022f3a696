"""Which Prometheus the operator asks for a stream, and whose series it believes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from manifests import make_spec
from scraped import Scrapes
from supervised import POD, SETTINGS, STREAM, Scene, conditions

from balancedstream.core.policy import Policy
from balancedstream.core.samples import BatchSample
from balancedstream.errors import InvalidInputError
from balancedstream.metrics.exporter import Exporter
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.endpoints import Endpoint, Subject, choose_endpoint
from balancedstream_operator.observe.measurement import (
    QUERY_METRICS,
    Measurement,
    measure,
)
from balancedstream_operator.observe.prometheus import fetch_measurement
from balancedstream_operator.observe.series import Series
from balancedstream_operator.process.passes import Passes
from balancedstream_operator.settings import Settings

OWN = Settings("http://prometheus", read_credentials=lambda: {"token": "ours"})
DRIVER = Subject("shop/clicks", "shop", POD, ("10.0.0.7", "fd00::7"))


@pytest.mark.parametrize(
    ("allowed", "url", "may"),
    [
        ((), "http://prometheus/", True),
        ((), "http://other", False),
        (("http://other",), "http://other/", True),
        (("http://other/teams",), "http://other/teams/shop", True),
        (("http://other/teams",), "http://other/teams2", False),
        (("http://other/teams",), "http://other/teams/../admin", False),
        (("http://other",), "http://other.evil.example", False),
        (("http://other",), "http://other:8080", False),
        (("http://other",), "http://other@evil.example", False),
        (("http://other",), "http://evil.example\\@other", False),
        (("http://other",), "http://other:port", False),
        (("http://other",), "http://[other", False),
        (("http://other/teams",), "http://other/teams/%2e%2e/admin", False),
        (("http://other/teams",), "http://other/teams/%2E./admin", False),
        (("http://other",), "https://other", False),
        (("*",), "http://anything", True),
    ],
)
def test_a_stream_may_name_what_the_operator_allows(
    allowed: tuple[str, ...], url: str, may: bool
) -> None:
    spec = make_spec(metrics={"prometheusUrl": url})
    settings = Settings(OWN.prometheus_url, allowed_urls=allowed)
    if may:
        assert choose_endpoint(spec, settings, {}).url.rstrip("/") == url.rstrip("/")
        return
    with pytest.raises(MissingMeasurementsError, match="may not ask"):
        choose_endpoint(spec, settings, {})


def test_the_operators_credentials_go_to_its_own_prometheus_only() -> None:
    allows = replace(OWN, allowed_urls=("*",))
    theirs = make_spec(metrics={"prometheusUrl": "http://other"})
    found = choose_endpoint(make_spec(), allows, {})
    assert found == Endpoint(OWN.prometheus_url, (("token", "ours"),), of_the_operator=True)
    assert choose_endpoint(theirs, allows, {}) == Endpoint("http://other")
    own = {"token": "theirs"}
    assert choose_endpoint(theirs, allows, own) == Endpoint("http://other", (("token", "theirs"),))
    assert "ours" not in repr(choose_endpoint(make_spec(), allows, {}))


def test_the_operators_credentials_may_be_rotated() -> None:
    tokens = iter(["old", "new"])
    rotates = replace(OWN, read_credentials=lambda: {"token": next(tokens)})
    found = [choose_endpoint(make_spec(), rotates, {}).credentials for _ in range(2)]
    assert found == [(("token", "old"),), (("token", "new"),)]


@pytest.mark.parametrize(
    ("labels", "owns"),
    [
        ({}, True),
        ({"namespace": "shop", "pod": POD, "instance": "10.0.0.7:9404"}, True),
        ({"instance": "[fd00::7]:9404"}, True),
        ({"instance": "[fd00:0:0::7]:9404"}, True),
        ({"instance": "[FD00::7]"}, True),
        ({"instance": "fd00::7"}, True),
        ({"instance": "[::ffff:10.0.0.7]:9404"}, True),
        ({"instance": "fd00::7:9404"}, False),
        ({"instance": "fd00::8"}, False),
        ({"instance": "[fd00::8]:9404"}, False),
        ({"instance": "node-3"}, True),
        ({"pod": "clicks-driver-1"}, False),
        ({"pod": POD, "namespace": "bank"}, False),
        ({"pod": POD, "namespace": "shop", "instance": "10.8.0.7:9404"}, False),
        ({"instance": "10.0.0.9"}, False),
    ],
)
def test_a_target_is_the_driver_unless_its_labels_say_something_else(
    labels: dict[str, str], owns: bool
) -> None:
    assert DRIVER.owns({"stream": "shop/clicks", **labels}) is owns


def scrape(instance: str, late_s: float, rows: int) -> Scrapes:
    exporter, scrapes = Exporter(stream="shop/clicks"), Scrapes()
    for number in range(3):
        sample = BatchSample("q", number, 102.0 + 10.0 * number, 2.0, rows, 10.0, 0.0)
        exporter.on_batch(sample, [], {"1": 1})
        scrapes.scrape(exporter, 103.0 + late_s + 10.0 * number, instance)
    return scrapes


def test_another_pod_that_claims_to_be_the_driver_is_not_believed() -> None:
    ours, forged = scrape("10.0.0.7:9404", 0.0, 100), scrape("10.6.6.6:9404", 5.0, 9)

    def measure_by(*targets: Scrapes) -> Measurement:
        def fetch(metrics: Sequence[str], look_back_s: float) -> list[Series]:
            return [series for target in targets for series in target.select(tuple(metrics))]

        return fetch_measurement(fetch, DRIVER, Policy(), 130.0)

    assert {b.input_rows for b in measure_by(ours, forged).batches} == {100}
    with pytest.raises(MissingMeasurementsError, match=r"instance=10\.6\.6\.6:9404"):
        measure_by(forged)


@pytest.mark.parametrize(("stale_after_s", "missing"), [(None, True), (90.0, True), (150.0, False)])
def test_late_samples_are_used_if_the_spec_says_how_late_they_may_be(
    stale_after_s: float | None, missing: bool
) -> None:
    scrapes = scrape("10.0.0.7:9404", 0.0, 100)

    def look() -> Measurement:
        found = scrapes.select(QUERY_METRICS)
        return measure(found, [], 123.0 + 120.0, stale_after_s=stale_after_s)

    if not missing:
        assert look().scraped_s == 123.0
        return
    with pytest.raises(MissingMeasurementsError, match="120 s old"):
        look()


@pytest.mark.parametrize("name", ["stream", "__name__", "a-b", "1a", 'a"}'])
def test_a_label_that_cannot_be_matched_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"spec\.metrics\.labels"):
        make_spec(metrics={"labels": {name: "x"}})


class Listening(Scene):
    """A scene that keeps what was asked of Prometheus."""

    def __init__(self, **metrics: Any) -> None:
        self.endpoints: list[Endpoint] = []
        self.subjects: list[Subject] = []
        super().__init__(metrics=metrics)

    def make_passes(self) -> Passes:
        """One that notes which Prometheus it asks."""

        def open_source(endpoint: Endpoint) -> Listening:
            self.endpoints.append(endpoint)
            return self

        settings = Settings(
            SETTINGS.prometheus_url, prometheus_labels=(("cluster", "eu"), ("tier", "1"))
        )
        return Passes(STREAM, self.cluster, open_source, settings)

    def observe(self, subject: Subject, policy: Policy, now_s: float) -> Measurement:
        """As a scene does."""
        self.subjects.append(subject)
        return super().observe(subject, policy, now_s)


def test_a_stream_is_asked_for_by_its_pod_and_by_the_labels_of_operator_and_spec() -> None:
    scene = Listening(labels={"cluster": "us"}, staleAfterSeconds=90)
    scene.run_pass()
    scene.start_driver()
    status = scene.cluster.objects["Pod", POD]["status"]
    status["podIPs"] = [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]
    scene.run_pass()
    assert scene.subjects == [
        Subject(
            "shop/clicks",
            "shop",
            POD,
            ("10.0.0.7", "fd00::7"),
            (("cluster", "us"), ("tier", "1")),
            90,
        )
    ]


def test_the_secret_of_a_stream_is_read_in_its_namespace_and_a_missing_one_is_named() -> None:
    scene = Listening(secret="account")  # noqa: S106 - a name
    scene.run_pass()
    scene.start_driver()
    done = scene.run_pass()
    assert conditions(done)["MetricsAvailable"] == ("False", "Missing")
    (said,) = [c["message"] for c in done.status["conditions"] if c["type"] == "MetricsAvailable"]
    assert "Secret account, which spec.metrics.secret names, does not exist" in said
    token = base64.b64encode(b"t0ken").decode()
    scene.cluster.objects["Secret", "account"] = {"data": {"token": token}}
    scene.run_pass()
    asked = Endpoint(SETTINGS.prometheus_url, (("token", "t0ken"),), of_the_operator=True)
    assert scene.endpoints == [asked]
    assert "t0ken" not in str(scene.resource["status"])
