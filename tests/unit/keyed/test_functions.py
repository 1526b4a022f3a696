"""Functions of applyInPandasWithState hand a key over with its timeout, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import LongType, StringType, StructType

from balancedstream.core.keys.epochs import Arrival, Epoch, Piece
from balancedstream.keyed import functions
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.functions import MovableFunction
from balancedstream.keyed.packing import pack_state, unpack_state
from balancedstream.keyed.processors import ROUTE_COLUMN, StripFrames
from balancedstream.keyed.storage import Home, Operator

ENCODING = KeyEncoding(StructType().add("user", StringType()))
STATE = StructType().add("n", LongType())
NOW_MS = 10_000
KEY = '"de"'


def run(
    function: Any,
    epoch: Epoch,
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    *,
    rows: int = 0,
    route: int = 0,
    held: tuple[int] | None = None,
    timeout: str = "ProcessingTimeTimeout",
) -> tuple[list[Any], GroupState, dict[str, bytes]]:
    """One call for the key `de` in batch 5; gives output, state and what was written down."""
    context = SimpleNamespace(
        home=home,
        epoch=epoch,
        batch=5,
        partition=0,
        attempt=1,
        run_id="r",
        query="q",
        checkpoint="",
    )
    monkeypatch.setattr(functions, "BatchContext", lambda name: context)
    monkeypatch.setattr(
        functions, "TaskContext", SimpleNamespace(get=lambda: SimpleNamespace(taskAttemptId=int))
    )
    reports: list[Any] = []
    accumulator: Any = SimpleNamespace(add=reports.extend)
    strip = StripFrames(StructType().add("user", "string").add("n", "long"), ("user",))
    movable = MovableFunction(function, Operator(), ENCODING, timeout, accumulator, strip)
    # A control row where there are no others.
    frame = pd.DataFrame({"user": "de", "n": [1] * rows or [0], ROUTE_COLUMN: route})
    defined = held is not None
    state = GroupState(
        held, NOW_MS, -1, timeout, False, False, defined, False, False, -1, b"", STATE
    )  # fmt: skip
    output = [*movable((route, "de"), iter([frame]), state)]
    _, (report,) = reports[0].__reduce__()
    written = {
        key: home.read_handoff(report["file"], *place)
        for key, place in report.get("pieces", {}).items()
    }
    came = sum(arrival.source != route for arrival in epoch.arrivals.values())
    assert report["handoffs"] == len(written) + came
    return output, state, written


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(str(tmp_path), Operator())


def count_for_a_second(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[Any]:
    rows = sum(len(frame) for frame in frames)
    if state.hasTimedOut:
        yield "timed out"
        state.remove()
        return
    state.update((rows + (state.get[0] if state.exists else 0),))
    state.setTimeoutDuration(1_000)
    yield rows


def look_only(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[Any]:
    yield ("timed out", [len(frame) for frame in frames]) if state.hasTimedOut else "looked"


ASKED = Epoch(1, 5, asked=(KEY,))


def arrive(home: Home, held: tuple[int], timeout_ms: int) -> Epoch:
    packed = pack_state((held, timeout_ms))
    assert packed is not None
    writer = home.open_handoff(4, 1, 1)
    writer.add(KEY, packed)
    writer.close()
    arrival = Arrival(0, Piece(writer.file, 0, len(packed)))
    return Epoch(2, 5, {KEY: 3}, {KEY: arrival})


def test_a_key_goes_with_the_state_and_the_timeout_that_its_function_set(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, _, written = run(count_for_a_second, ASKED, home, monkeypatch, rows=2, held=(3,))
    assert output == [2]
    assert unpack_state(written[KEY]) == ((5,), NOW_MS + 1_000)


@pytest.mark.parametrize(("rows", "function"), [(0, count_for_a_second), (2, look_only)])
def test_a_key_whose_timeout_is_not_known_stays(
    home: Home, monkeypatch: pytest.MonkeyPatch, rows: int, function: Any
) -> None:
    _, _, written = run(function, ASKED, home, monkeypatch, rows=rows, held=(3,))
    assert written == {}


def test_without_timeouts_a_key_goes_when_it_is_asked_though_no_row_comes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, written = run(look_only, ASKED, home, monkeypatch, held=(3,), timeout="NoTimeout")
    assert unpack_state(written[KEY]) == ((3,), -1)


def test_the_old_owner_forgets_and_the_new_one_goes_on_with_state_and_timeout(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = arrive(home, (7,), NOW_MS + 500)
    output, state, _ = run(look_only, epoch, home, monkeypatch, held=(7,))
    assert (output, state.exists) == ([], False)
    output, state, _ = run(look_only, epoch, home, monkeypatch, route=3)
    assert (output, state.get) == ([], (7,))
    assert '"timeoutTimestamp": 10500' in state.json()


def test_a_timeout_that_is_over_calls_the_function_once_at_the_new_place(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = arrive(home, (7,), NOW_MS - 1)
    output, state, _ = run(count_for_a_second, epoch, home, monkeypatch, route=3)
    assert (output, state.exists) == (["timed out"], False)
    output, _, _ = run(look_only, epoch, home, monkeypatch, route=3)
    assert output == [("timed out", [0])]


def test_a_function_that_changes_its_frame_is_given_its_columns_again_when_the_key_times_out(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[Any]:
        for frame in frames:
            yield [*frame.columns]
            frame["extra"] = 0
            del frame["n"]

    epoch = arrive(home, (7,), NOW_MS - 1)
    output, _, _ = run(change, epoch, home, monkeypatch, rows=1, route=3)
    assert output == [["user", "n"], ["user", "n"]]


def test_rows_at_the_new_place_replace_the_timeout_that_came_along(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def update(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[Any]:
        state.update((sum(len(frame) for frame in frames),))
        yield "updated"

    for timeout_ms in (NOW_MS - 1, NOW_MS + 500):
        epoch = arrive(home, (7,), timeout_ms)
        output, state, _ = run(update, epoch, home, monkeypatch, rows=2, route=3)
        assert (output, state.get) == (["updated"], (2,))
        assert '"timeoutTimestamp": -1' in state.json()
