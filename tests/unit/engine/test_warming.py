"""When a warm-up ends, and that an executor counts as it is then."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from unittest import mock

import pytest

from balancedstream.engine.warming import WarmUp


def test_a_warm_up_that_is_given_up_before_its_thread_runs_has_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[threading.Thread] = []
    start = threading.Thread.start

    def start_later(thread: threading.Thread) -> None:
        if thread.name.startswith("balancedstream-warm-up"):
            held.append(thread)
        else:
            start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)
    told: SimpleQueue[str] = SimpleQueue()
    rows = mock.MagicMock()
    warm_up = WarmUp(mock.MagicMock(), rows, mock.MagicMock(), told.put)
    warm_up.begin("3", 2)
    warm_up.give_up()
    assert told.get(timeout=10) == "3"
    held[0].run()
    rows.count.assert_not_called()


def test_an_executor_counts_as_it_is_where_there_are_no_more_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    told: list[str] = []
    WarmUp(mock.MagicMock(), mock.MagicMock(), mock.MagicMock(), told.append).begin("3", 2)
    assert told == ["3"]
