"""The backlog of a query whose sources report anything."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.engine.sources.backlog import KINDS, Backlog
from balancedstream.engine.sources.progress import Files, SourceKind, SourceProgress

Row = dict[str, Any]

KAFKA = "KafkaV2[Subscribe[t]]"
FOLDER = "FileStreamSource[file:/in]"


def source(
    description: str = KAFKA,
    *,
    start: Any = None,
    end: Any = None,
    latest: Any = None,
    rows: int = 5,
    files: list[int] | None = None,
) -> Row:
    """A source as the listener reports it: its offsets are texts."""
    offsets = {
        name: None if offset is None else json.dumps(offset)
        for name, offset in {"start": start, "end": end, "latest": latest}.items()
    }
    return {"description": description, **offsets, "rows": rows, "files": files}


def topic(waiting: int) -> Row:
    return source(end={"t": {"0": 4}}, latest={"t": {"0": 4 + waiting}})


def folder(rows: int, files: list[int]) -> Row:
    return source(FOLDER, end={"logOffset": 0}, rows=rows, files=files)


def test_what_waits_at_each_source_adds_up() -> None:
    backlog = Backlog("q")
    assert backlog.count([topic(7), folder(40, [4, 1, 0]), folder(10, [1, 1, 0])]) == 177.0
    assert backlog.count([topic(0)]) == 0.0


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [source("RateStreamV2[rowsPerSecond=1]", end=7, latest=9)],
        # As nested as Kafka's: texts of Kinesis, times, the versions of a table.
        [source("Mine", end={"s": {"p": "48"}}, latest={"s": {"p": "49"}})],
        [
            source(
                "Mine", end={"f": {"0": 1_764_300_000_000}}, latest={"f": {"0": 1_764_400_000_000}}
            )
        ],
        [source("DeltaSource[/in]", end={"reservoirVersion": 1, "index": -1}, latest={"v": 9})],
        [source("Mine", latest={"logOffset": 7}, end={"logOffset": 5})],
    ],
)
def test_sources_that_nobody_knows_have_no_backlog(
    sources: list[Row], caplog: pytest.LogCaptureFixture
) -> None:
    assert Backlog("q").count(sources) is None
    assert caplog.records == []


def test_a_known_source_counts_beside_one_that_nobody_knows() -> None:
    assert Backlog("q").count([source("Mine", end=1, latest=9), topic(7)]) == 7.0


ODD = {
    "no JSON": source() | {"latest": "offset 9", "end": "{}"},
    "too deep": source() | {"latest": "[" * 100_000, "end": "{}"},
    "too long a number": source() | {"latest": "9" * 10_000, "end": "{}"},
    "texts": source(end={"t": {"0": "4"}}, latest={"t": {"0": "9"}}),
    "more rows than a number has": source(end={}, latest={"t": {"0": 10**400}}),
    "files without an offset": source(FOLDER, end={"x": 1}, files=[1, 1, 0]),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_source_that_cannot_be_read_is_said_once_and_left_out(
    odd: Row, caplog: pytest.LogCaptureFixture
) -> None:
    backlog = Backlog("clicks")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert backlog.count([topic(7), odd, topic(3)]) == 10.0
    (record,) = caplog.records
    assert record.getMessage().startswith(f"clicks: what waits at source {odd['description']} is")


def test_each_source_that_cannot_be_read_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert Backlog("q").count([ODD["texts"], ODD["no JSON"]]) is None
    assert len(caplog.records) == 2


def test_a_source_counts_again_once_it_can_be_read() -> None:
    backlog = Backlog("q")
    assert backlog.count([ODD["texts"]]) is None
    assert backlog.count([topic(7)]) == 7.0


class Forgetful(SourceKind):
    """A kind whose count is the rows of the batch."""

    @staticmethod
    def recognizes(source: SourceProgress) -> bool:
        return True

    def count(self, source: SourceProgress) -> float:
        return float(source.rows)


@pytest.mark.parametrize("rows", [-1, float("inf"), float("nan")])
def test_a_count_that_is_none_is_no_backlog(rows: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert Backlog("q", [Forgetful]).count([source() | {"rows": rows}]) is None
    assert len(caplog.records) == 1


OFFSETS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["0", "t"]), inner),
    max_leaves=8,
)
ROWS = st.builds(
    source,
    st.sampled_from([KAFKA, "KafkaSourceV1[]", FOLDER]) | st.text(),
    start=OFFSETS,
    end=OFFSETS | st.builds(lambda n: {"logOffset": n}, OFFSETS),
    latest=OFFSETS,
    rows=st.integers(),
    files=st.none() | st.lists(st.integers(), max_size=4),
)


@given(st.lists(st.lists(ROWS, max_size=3), max_size=4))
def test_whatever_sources_report_the_backlog_is_rows_or_unknown(batches: list[list[Row]]) -> None:
    backlog = Backlog("q")
    for sources in batches:
        rows = backlog.count(sources)
        assert rows is None or 0 <= rows < float("inf")
        known = backlog.count([*sources, *[source("none")] * (3 - len(sources)), topic(7)])
        assert known is not None
        assert known >= 7


def test_every_kind_leaves_a_source_that_is_not_its_own_alone() -> None:
    strange = SourceProgress("Mine", 1, {"a": {"b": "c"}}, {"a": {"b": "d"}}, 3)
    assert not any(kind.recognizes(strange) for kind in KINDS)
    assert sum(kind.recognizes(SourceProgress(FOLDER, files=Files(1, 1, 0))) for kind in KINDS) == 1
