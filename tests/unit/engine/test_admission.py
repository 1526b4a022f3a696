"""Which sources take a bound, in which unit, and how several share it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.engine.admission import BoundedSource, bound_rows, find_bounded, share_rows
from balancedstream.engine.sources.backlog import Backlog
from balancedstream.engine.sources.limits import (
    MAX_BYTES,
    MAX_FILES,
    MAX_ROWS,
    MIN_ROWS,
    PYTHON,
    SourceLimits,
    UnboundedError,
)

KAFKA = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
FOLDER = "org.apache.spark.sql.execution.streaming.runtime.FileStreamSource"
OLD_FOLDER = "org.apache.spark.sql.execution.streaming.FileStreamSource"
DELTA = "org.apache.spark.sql.delta.sources.DeltaSource"
ICEBERG = "org.apache.iceberg.spark.source.SparkMicroBatchStream"
_PYTHON_PACKAGE = "org.apache.spark.sql.execution.datasources.v2.python"
READER = f"{_PYTHON_PACKAGE}.PythonMicroBatchStreamWithAdmissionControl"
DELTA_BYTES = "org.apache.spark.sql.delta.sources.ReadMaxBytes"


def source(
    kind: str, *own: list[Any], limited: bool = True, latest_first: bool = False
) -> dict[str, Any]:
    """As `Admission.java` describes it."""
    return {"kind": kind, "is_limited": limited, "latest_first": latest_first, "own": list(own)}


def query(
    *sources: dict[str, Any], timed: bool = True, watermarks: str | None = "min"
) -> dict[str, Any]:
    return {"is_timed": timed, "watermarks": watermarks, "sources": list(sources)}


def python_limit(**values: Any) -> list[Any]:
    return [PYTHON, json.dumps(values)]


@pytest.mark.parametrize(
    ("described", "unit"),
    [
        (source(KAFKA), "rows"),
        (source(KAFKA, [MAX_ROWS, 900], [MIN_ROWS, 10]), "rows"),
        (source("org.apache.spark.sql.kafka010.KafkaSource"), "rows"),
        (source(FOLDER), "bytes"),
        (source(FOLDER, [MAX_BYTES, 5_000]), "bytes"),
        (source(FOLDER, [MAX_FILES, 4]), "files"),
        (source(DELTA, [MAX_FILES, 1_000]), "files"),
        (source(ICEBERG), "rows"),
        (source(ICEBERG, [MAX_ROWS, 50], [MAX_FILES, 4]), "rows"),
        (source(READER, python_limit(max_rows=5_000, _type="ReadMaxRows")), "python"),
    ],
)
def test_a_source_that_is_known_is_bounded_by_what_it_takes(
    described: dict[str, Any], unit: str
) -> None:
    (found,) = find_bounded(query(described), Backlog("q"), bytes_too=True)
    assert (found.number, found.unit) == (0, unit)


def test_before_spark_4_0_files_are_bounded_by_their_number() -> None:
    (found,) = find_bounded(query(source(OLD_FOLDER)), Backlog("q"), bytes_too=False)
    assert found.unit == "files"


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        # Its name alone is that of Spark's.
        (source("com.example.FileStreamSource"), "FileStreamSource: what bounds it is not known"),
        (source("com.example.KafkaMicroBatchStream", [MAX_ROWS, 9]), "is not known"),
        (source("Mine", limited=False), "Mine: Spark lets nobody limit it"),
        (source(FOLDER, latest_first=True), "newest files first"),
        (source(KAFKA, ["com.example.MyLimit", None]), "cannot be lowered (MyLimit)"),
        (source(DELTA, [DELTA_BYTES, None]), "cannot be lowered (ReadMaxBytes)"),
        (source(READER, python_limit(_type="ReadAllAvailable")), "does not limit its own rows"),
        (source(READER, python_limit(max_files=3, _type="ReadMaxFiles")), "its own rows"),
        (source(READER), "does not limit its own rows"),
        (source(KAFKA) | {"own": None}, "no batch of it is planned yet"),
    ],
)
def test_any_other_source_is_left_alone_and_it_is_said_why(
    described: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnboundedError) as refused:
        find_bounded(query(described), Backlog("q"), bytes_too=True)
    assert reason in str(refused.value)


def test_only_batches_at_the_ticks_of_a_clock_are_bounded() -> None:
    with pytest.raises(UnboundedError, match="interval"):
        find_bounded(query(source(KAFKA), timed=False), Backlog("q"), bytes_too=True)


def test_a_query_without_a_batch_has_no_sources_to_bound() -> None:
    with pytest.raises(UnboundedError, match="planned"):
        find_bounded(query(), Backlog("q"), bytes_too=True)


@pytest.mark.parametrize("policy", ["max", None])
def test_several_sources_are_bounded_only_if_the_lowest_watermark_holds(
    policy: str | None,
) -> None:
    both = source(KAFKA), source(KAFKA)
    with pytest.raises(UnboundedError, match="multipleWatermarkPolicy"):
        find_bounded(query(*both, watermarks=policy), Backlog("q"), bytes_too=True)
    assert len(find_bounded(query(*both), Backlog("q"), bytes_too=True)) == 2
    assert find_bounded(query(both[0], watermarks=policy), Backlog("q"), bytes_too=True)


def rows_of(*numbers: int) -> list[BoundedSource]:
    return [BoundedSource(n, "rows", SourceLimits(KAFKA, {}), None) for n in numbers]


@given(
    st.floats(0, 1e9) | st.just(1e300),
    st.dictionaries(st.integers(0, 3), st.floats(0, 1e12), max_size=4),
    st.integers(1, 4),
)
def test_a_bound_always_lets_a_batch_get_on_and_is_shared_in_full(
    rows: float, waiting: dict[int, float], sources: int
) -> None:
    shares = share_rows(rows, rows_of(*range(sources)), waiting, {})
    counts = [int(share.removeprefix("rows:")) for share in shares.values()]
    assert min(counts) >= 1
    assert sum(counts) <= rows * (1 + 1e-9) + sources


def test_a_python_source_gets_no_more_than_its_own_limit() -> None:
    limits = SourceLimits(READER, {PYTHON: python_limit(max_rows=500, _type="ReadMaxRows")[1]})
    reader = BoundedSource(0, "python", limits, None)
    assert share_rows(900, [reader], {}, {}) == {0: "python:500"}
    assert share_rows(90, [reader], {}, {}) == {0: "python:90"}


def folder_row(
    end: int, *, rows: int = 0, waiting: int = 0, scanned: list[int] | None = None
) -> dict[str, Any]:
    """A source of files, as planned or as read."""
    return {
        "description": "FileStreamSource[file:/in]",
        "start": None,
        "end": json.dumps({"logOffset": end}),
        "latest": None,
        "rows": rows,
        "files": [waiting, end + 1, end, waiting * 1000],
        "scanned": scanned,
    }


@dataclass
class Answers:
    """What the listener in the JVM is told, and says."""

    described: dict[str, Any] | None
    bounds: list[str] = field(default_factory=list)
    given_back: int = 0

    def describeSources(self, run_id: str) -> str:
        return json.dumps(self.described)

    def bound(self, run_id: str, limits: str, rows: float) -> bool:
        self.bounds.append(limits)
        return True

    def giveLimitsBack(self, run_id: str) -> None:
        self.given_back += 1


def test_a_folder_is_bounded_once_it_is_known_how_many_rows_its_files_hold() -> None:
    listener, backlog = Answers(query(source(FOLDER))), Backlog("q")
    unknown = bound_rows(listener, "r", backlog, 100, bytes_too=True)
    assert unknown == "how many rows its files hold is not known yet"
    assert (listener.bounds, listener.given_back) == ([], 1)
    backlog.plan([folder_row(0, scanned=[2, 2000])])
    backlog.count([folder_row(0, rows=40)])
    assert bound_rows(listener, "r", backlog, 100, bytes_too=True) == ""
    listener.described = query(source(FOLDER, [MAX_FILES, 100]))
    assert bound_rows(listener, "r", backlog, 100, bytes_too=True) == ""
    assert listener.bounds == ["bytes:5000", "files:5"]


def test_a_source_that_takes_no_bound_is_left_out_beside_one_that_does() -> None:
    listener = Answers(query(source("Mine", limited=False), source(KAFKA)))
    assert bound_rows(listener, "r", Backlog("q"), 7.9, bytes_too=True) == ""
    assert listener.bounds == [",rows:7"]


def test_a_query_that_has_ended_is_not_bounded() -> None:
    assert bound_rows(Answers(None), "r", Backlog("q"), 7, bytes_too=True) != ""


# --- what a planned batch reads ---


def kafka_row(start: int, end: int, latest: int | None, rows: int = 0) -> dict[str, Any]:
    offsets = {"start": start, "end": end, "latest": latest}
    texts = {n: None if o is None else json.dumps({"t": {"0": o}}) for n, o in offsets.items()}
    return {"description": "KafkaV2[Subscribe[t]]", "rows": rows, "files": None, **texts}


def other_row(rows: int) -> dict[str, Any]:
    return {"description": "Mine", "rows": rows, "start": None, "end": "5", "latest": "9"}


def test_rows_of_a_planned_batch_add_up_over_its_sources() -> None:
    backlog = Backlog("q")
    backlog.plan([kafka_row(0, 5, 5), folder_row(0, scanned=[1, 1000])])
    backlog.count([kafka_row(0, 5, 5, rows=5), folder_row(0, rows=20)])
    planned = backlog.plan([kafka_row(5, 8, 20), folder_row(1, waiting=3, scanned=[1, 500])])
    assert planned == (3 + 10, 12 + 60)


def test_what_files_hold_is_unknown_until_some_were_read_and_a_batch_without_files_reads_none() -> (
    None
):
    backlog = Backlog("q")
    assert backlog.plan([folder_row(0, waiting=3, scanned=[1, 1000])]) == (None, None)
    assert backlog.plan([folder_row(0)]) == (0.0, 0.0)


def test_rows_are_unknown_beside_a_source_that_reads_some_and_does_not_tell() -> None:
    backlog = Backlog("q")
    backlog.count([kafka_row(0, 500, 500, rows=500), other_row(5)])
    assert backlog.plan([kafka_row(500, 600, 700), other_row(0)]) == (100.0, 100.0)
    backlog.count([kafka_row(500, 600, 700, rows=100), other_row(60)])
    assert backlog.plan([kafka_row(600, 700, 700), other_row(0)]) == (None, 0.0)


def test_between_batches_a_source_that_was_not_asked_counts_as_it_was_last_told() -> None:
    backlog = Backlog("q")
    backlog.plan([kafka_row(0, 5, 5), folder_row(0, scanned=[1, 1000])])
    backlog.count([kafka_row(0, 5, 5, rows=5), folder_row(0, rows=20, waiting=2)])
    assert backlog.ask([kafka_row(5, 5, 9), folder_row(0)]) == 4 + 40
    assert backlog.ask([kafka_row(5, 9, 9), folder_row(0)]) == 40


@given(st.lists(st.dictionaries(st.text(), st.integers()) | st.none(), max_size=3))
def test_offsets_that_cannot_be_read_leave_the_rows_unknown(offsets: list[Any]) -> None:
    rows = [kafka_row(0, 1, 2) | {"end": json.dumps(offset)} for offset in offsets]
    planned = Backlog("q").plan(rows)
    assert planned.rows is None or planned.rows >= 0


def test_beside_a_source_that_does_not_tell_a_large_one_does_not_starve() -> None:
    backlog = Backlog("q")
    left = 0.0
    for _ in range(50):
        share = share_rows(125, rows_of(0, 1), {0: left}, backlog.rows_read)
        given = min(left + 95.0, int(share[0].removeprefix("rows:")))
        left += 95.0 - given
        backlog.count([{"description": "x", "rows": int(given)}, {"description": "y", "rows": 5}])
    assert left < 95.0
