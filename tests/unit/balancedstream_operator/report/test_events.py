"""Kubernetes events of a stream are posted once in a while, and are never worth a failure."""

from __future__ import annotations

import pytest

from balancedstream_operator.api.resource import MAX_MESSAGE, Manifest
from balancedstream_operator.api.status import StreamEvent
from balancedstream_operator.errors import RefusedError
from balancedstream_operator.report.events import EventPoster

RESOURCE = {"metadata": {"name": "clicks", "namespace": "shop", "uid": "1"}}


class Sink:
    """Keeps events, unless it refuses all."""

    def __init__(self) -> None:
        self.events: list[Manifest] = []
        self.refuses = False

    def create_event(self, manifest: Manifest) -> None:
        if self.refuses:
            message = "the API server did not make event: the namespace is being terminated"
            raise RefusedError(message)
        self.events.append(manifest)


def test_an_event_is_posted_once_in_half_an_hour_unless_it_says_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock_s[0])
    sink = Sink()
    poster = EventPoster(sink)
    for at_s, event in (
        (0.0, StreamEvent("Skewed", "imbalance 1.5", warning=True)),
        (60.0, StreamEvent("Skewed", "imbalance 1.5", warning=True)),
        (60.0, StreamEvent("Moving", "2 moves")),
        (90.0, StreamEvent("Skewed", "imbalance 1.6", warning=True)),
        (90.0 + 1799.0, StreamEvent("Skewed", "imbalance 1.6", warning=True)),
        (90.0 + 1801.0, StreamEvent("Skewed", "imbalance 1.6", warning=True)),
    ):
        clock_s[0] = at_s
        poster.post(RESOURCE, [event])
    assert [(e["type"], e["reason"], e["message"]) for e in sink.events] == [
        ("Warning", "Skewed", "imbalance 1.5"),
        ("Normal", "Moving", "2 moves"),
        ("Warning", "Skewed", "imbalance 1.6"),
        ("Warning", "Skewed", "imbalance 1.6"),
    ]


def test_an_event_names_its_stream_and_is_short() -> None:
    sink = Sink()
    EventPoster(sink).post(RESOURCE, [StreamEvent("Moving", "m" * 5000), StreamEvent("Other", "")])
    first, second = sink.events
    assert first["involvedObject"]["uid"] == "1"
    assert len(first["message"]) == MAX_MESSAGE
    assert first["metadata"]["namespace"] == "shop"
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_an_event_that_nobody_takes_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()
    sink.refuses = True
    EventPoster(sink).post(RESOURCE, [StreamEvent("Moving", "2 moves")])
    assert "event Moving (2 moves) is not posted" in caplog.text
