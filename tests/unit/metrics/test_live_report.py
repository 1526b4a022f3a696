"""How often the page at `/report` is drawn, and who gets it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_samples import fetch, scrape, select

from balancedstream.metrics import live_report
from balancedstream.metrics.exporter import Exporter
from balancedstream.metrics.live_report import LEAST_PAUSE_S, PAUSE_FACTOR, LiveReport, find_refusal


class Run:
    """A run whose report takes some time to draw, by a clock of its own."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.happened = 0
        self.drawn = 0
        self._takes_s = takes_s
        self.report = LiveReport(lambda: self.now_s)
        self.report.follow(self.draw, lambda: self.happened)

    def draw(self) -> str:
        self.drawn += 1
        self.now_s += self._takes_s
        return f"{self.happened} batches"


def test_a_page_is_drawn_again_only_after_a_while_and_if_there_is_something_new() -> None:
    run = Run()
    assert run.report.page() == b"0 batches"
    run.happened = 1
    assert run.report.page() == b"0 batches"
    run.now_s += LEAST_PAUSE_S
    assert run.report.page() == b"1 batches"
    run.now_s += 1000 * LEAST_PAUSE_S
    for _ in range(1000):
        run.report.page()
    assert run.drawn == 2


@given(st.floats(0.0, 5.0), st.lists(st.floats(0.0, 30.0), max_size=60))
def test_however_often_somebody_asks_pages_take_a_twentieth_of_a_core(
    takes_s: float, pauses_s: list[float]
) -> None:
    run = Run(takes_s)
    for pause_s in pauses_s:
        run.happened += 1
        run.now_s += pause_s
        run.report.page()
    assert (run.drawn - 1) * (PAUSE_FACTOR + 1) * takes_s <= run.now_s - 100.0 + 1e-6


def test_who_asks_while_a_page_is_drawn_gets_the_last_one_at_once() -> None:
    drawing, go_on = threading.Event(), threading.Event()
    pages = iter(["first", "second"])

    def draw() -> str:
        page = next(pages)
        if page == "second":
            drawing.set()
            assert go_on.wait(30)
        return page

    now_s = [0.0]
    report = LiveReport(lambda: now_s[0])
    report.follow(draw, lambda: now_s[0])
    assert report.page() == b"first"
    now_s[0] = LEAST_PAUSE_S
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(report.page)
        assert drawing.wait(30)
        assert [report.page() for _ in range(50)] == [b"first"] * 50
        go_on.set()
        assert slow.result() == b"second"


def test_a_page_that_cannot_be_drawn_says_so_and_is_not_tried_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run()
    tries: list[int] = []
    logged: list[str] = []
    monkeypatch.setattr(live_report.log, "exception", logged.append)

    def fail() -> str:
        tries.append(run.happened)
        raise ZeroDivisionError

    run.report.follow(fail, lambda: run.happened)
    for _ in range(9):
        run.happened += 1
        assert b"cannot be drawn now; the job goes on" in run.report.page()
    assert len(tries) == 1
    assert logged == ["the live report cannot be drawn; the job is not affected"]
    run.report.follow(lambda: "page", lambda: 0)
    assert run.report.page() == b"page"


def test_before_a_session_a_page_says_what_it_waits_for(exporter: Exporter) -> None:
    for path in ("/report", "/report/"):
        page = fetch(exporter, path)
        assert "has not asked for a Spark session yet" in page
        assert 'http-equiv="refresh"' in page
    exporter.serve_report(lambda: "<p>so far →</p>", lambda: 0)
    assert fetch(exporter, "/report") == "<p>so far →</p>"
    assert select(scrape(exporter), "build_info")


def test_the_address_without_a_path_leads_to_the_report(exporter: Exporter) -> None:
    answer = ask(exporter, {}, "/")
    assert (answer.status, answer.getheader("Location")) == (302, "/report")


def ask(
    exporter: Exporter, headers: Mapping[str, str], path: str = "/report"
) -> http.client.HTTPResponse:
    assert exporter.port is not None
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=30)
    connection.request("GET", path, headers=dict(headers))
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def test_a_name_of_somebody_else_that_leads_here_gets_nothing(exporter: Exporter) -> None:
    assert ask(exporter, {}).status == 200
    refused = ask(exporter, {"Host": "rebound.example.com:8000"})
    assert refused.status == 403
    assert ask(exporter, {"Host": "localhost:8000"}).getheader("X-Frame-Options") == "DENY"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:80", "[::1]:9", "[fe80::1]", "localhost", "LOCALHOST:1", "driver:80",
     "driver.jobs.svc:80", "driver.jobs.svc.cluster.local", "printer.local", "a.internal."],
)  # fmt: skip
def test_an_address_and_names_that_nobody_can_register_are_served(host: str) -> None:
    assert find_refusal({"HTTP_HOST": host}) == ""


@pytest.mark.parametrize(
    "host",
    ["evil.com", "127.0.0.1.evil.com", "localhost.evil.com:80", "a@evil.com", "evil.com\x1b[31m",
     "[evil.com]", "x.svc.evil.com", "evil.com.", "local.com"],
)  # fmt: skip
def test_any_other_name_is_refused_in_printable_words(host: str) -> None:
    assert find_refusal({"HTTP_HOST": host}).isprintable()
    assert "not served under the name" in find_refusal({"HTTP_HOST": host})


def test_the_whole_name_of_the_machine_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "Node12.example.com")
    live_report._find_own_names.cache_clear()
    assert find_refusal({"HTTP_HOST": "node12.example.com:4050"}) == ""
    assert find_refusal({"HTTP_HOST": "node13.example.com:4050"})
    monkeypatch.undo()
    live_report._find_own_names.cache_clear()


OWN = {"HTTP_HOST": "127.0.0.1:8000"}


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({}, False),
        ({"SITE": "none", "MODE": "navigate", "DEST": "document"}, False),
        ({"SITE": "same-origin", "MODE": "navigate", "DEST": "document"}, False),
        ({"SITE": "cross-site", "MODE": "navigate", "DEST": "document"}, False),
        ({"SITE": "cross-site", "MODE": "navigate", "DEST": "iframe"}, True),
        ({"SITE": "cross-site", "MODE": "no-cors", "DEST": "image"}, True),
        ({"SITE": "same-site", "MODE": "cors", "DEST": "empty"}, True),
    ],
)
def test_a_page_of_another_site_cannot_have_a_browser_ask(
    headers: Mapping[str, str], is_refused: bool
) -> None:
    sent = {f"HTTP_SEC_FETCH_{name}": value for name, value in headers.items()}
    assert bool(find_refusal(OWN | sent)) is is_refused


@pytest.mark.parametrize(
    ("origin", "is_refused"),
    [("http://127.0.0.1:8000", False), ("https://evil.com", True), ("null", True)],
)
def test_an_origin_must_be_that_of_the_page(origin: str, is_refused: bool) -> None:
    assert bool(find_refusal(OWN | {"HTTP_ORIGIN": origin})) is is_refused
