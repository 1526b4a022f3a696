"""With which settings queries start, and what their session keeps of them: nothing."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrameReader
from pyspark.sql.streaming import DataStreamWriter

from balancedstream.engine.session import fitting as fitting_module
from balancedstream.engine.session.filemanagers import FILE_MANAGER
from balancedstream.engine.session.fitting import fit, fitting
from balancedstream.engine.session.settings import (
    CHANGELOG,
    CHECKPOINT_FORMAT,
    PROVIDER,
    QUERY_SETTINGS,
    ROCKSDB,
    tune,
)
from balancedstream.workers.names import CHECKPOINT_LOCATION

RENAMING = "org.example.Renaming"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
OURS = {k: v for k, v in tune({}, executors=4)[0].items() if k in QUERY_SETTINGS}
OURS[FILE_MANAGER] = RENAMING


class Conf(dict[str, str]):
    """The settings of a session."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)


def make_writer(options: dict[str, str], conf: Conf, default_fs: str) -> Any:
    """A writer with options whose session has these settings."""
    writer = mock.MagicMock(spec=["_spark", "_jwrite"])
    writer._spark.conf = conf
    context = writer._spark.sparkContext
    context._jsc.hadoopConfiguration.return_value.get.return_value = default_fs
    found = writer._jwrite.getClass.return_value.getDeclaredField.return_value.get.return_value
    found.contains = options.__contains__
    found.get.side_effect = lambda name: mock.Mock(get=lambda: options[name])
    return writer


def start(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    *args: str,
    method: str = "start",
    own: dict[str, str] | None = None,
    default_fs: str = "file:///",
    **keywords: str,
) -> dict[str, str]:
    """The settings of a query at the moment at which it starts."""
    conf = Conf(own or {})
    before = dict(conf)
    at_start: list[dict[str, str]] = []
    monkeypatch.setattr(DataStreamWriter, method, lambda *_, **__: at_start.append(dict(conf)))
    with fitting(OURS, keeps_formats=True):
        writer = make_writer(options, conf, default_fs)
        getattr(DataStreamWriter, method)(writer, *args, **keywords)
    assert conf == before, "the session has what it had"
    return at_start[0]


@pytest.mark.parametrize(
    ("options", "renames"),
    [
        ({}, True),
        ({"checkpointlocation": "/mnt/checkpoints/q"}, True),
        ({"checkpointlocation": "file:/mnt/checkpoints/q"}, True),
        ({"checkpointlocation": "hdfs://nn/q"}, False),
        ({"checkpointlocation": "s3a://bucket/q"}, False),
        ({"checkpointlocation": "/mnt/q", "path": "s3a://bucket/out"}, False),
    ],
)
def test_a_query_renames_only_on_posix_storage(
    options: dict[str, str], renames: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = start(monkeypatch, options)
    assert (found.get(FILE_MANAGER) == RENAMING) is renames
    assert found == {k: v for k, v in OURS.items() if renames or k != FILE_MANAGER}


def test_what_start_itself_is_given_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for given_last in (
        start(monkeypatch, {}, checkpointLocation="hdfs://nn/q"),
        start(monkeypatch, {}, method="toTable", checkpointLocation="hdfs://nn/q"),
        start(monkeypatch, {}, "s3a://bucket/out"),
    ):
        assert FILE_MANAGER not in given_last


def test_without_a_location_of_its_own_the_sessions_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {CHECKPOINT_LOCATION: "s3a://bucket/checkpoints"}
    assert FILE_MANAGER not in start(monkeypatch, {}, own=own)
    options = {"checkpointlocation": "/q"}
    assert FILE_MANAGER not in start(monkeypatch, options, default_fs="hdfs://nn")


OWN = st.fixed_dictionaries(
    {},
    optional={
        PROVIDER: st.sampled_from([ROCKSDB, HDFS, "com.example.Own"]),
        CHANGELOG: st.sampled_from(["true", "false"]),
        CHECKPOINT_FORMAT: st.sampled_from(["1", "2"]),
        FILE_MANAGER: st.just("com.example.Own"),
        "spark.sql.shuffle.partitions": st.sampled_from(["1", "6", "200"]),
    },
)


@given(OWN, st.booleans(), st.sampled_from([None, "1", "2"]))
def test_what_the_user_set_by_then_stays_and_ours_goes_with_it(
    own: dict[str, str], on_posix: bool, found_format: str | None
) -> None:
    fitted = fit(OURS, own, on_posix=on_posix, found_format=found_format)
    # Before Spark 4.3 a checkpoint says which format it has, whatever anybody wants.
    assert not (fitted.keys() - {CHECKPOINT_FORMAT}) & own.keys()
    if found_format is not None:
        assert fitted[CHECKPOINT_FORMAT] == found_format
    elif own.get(PROVIDER, ROCKSDB) != ROCKSDB:
        assert not fitted.keys() & {PROVIDER, CHANGELOG, CHECKPOINT_FORMAT}
    else:
        assert (own | fitted).keys() >= {PROVIDER, CHANGELOG, CHECKPOINT_FORMAT}
    assert (FILE_MANAGER in fitted) is (on_posix and FILE_MANAGER not in own)


def test_a_start_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = Conf({PROVIDER: HDFS})

    def refuse(*_: object, **__: object) -> None:
        raise ValueError(HDFS)

    monkeypatch.setattr(DataStreamWriter, "start", refuse)
    writer = make_writer({}, conf, "file:///")
    with fitting(OURS, keeps_formats=True), pytest.raises(ValueError, match="HDFS"):
        DataStreamWriter.start(writer)
    assert conf == {PROVIDER: HDFS}


def test_an_interrupt_before_a_start_leaves_nothing_behind() -> None:
    class Interrupted(Conf):
        def set(self, key: str, value: str) -> None:
            if self.keys() & OURS.keys():
                raise KeyboardInterrupt
            super().set(key, value)

    conf = Interrupted()
    with fitting(OURS, keeps_formats=True), pytest.raises(KeyboardInterrupt):
        DataStreamWriter.start(make_writer({}, conf, "file:///"))
    assert not conf


def test_a_listener_may_read_a_state_while_a_start_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []
    monkeypatch.setattr(fitting_module, "TURN_S", 0.01)
    monkeypatch.setattr(fitting_module, "find_format", lambda *_: "1")
    monkeypatch.setattr(DataFrameReader, "load", lambda reader, *_, **__: found.append("rows"))
    reader = mock.MagicMock(spec=["_spark", "_jreader"])
    reader._spark.conf = Conf()

    def start(*_: object, **__: object) -> None:
        def read() -> None:
            DataFrameReader.load(reader, "/q", format="statestore")

        # Spark calls `onQueryStarted` from a thread of its own, and waits for its end.
        listener = threading.Thread(target=read, daemon=True)
        listener.start()
        listener.join(30.0)

    monkeypatch.setattr(DataStreamWriter, "start", start)
    with fitting(OURS, keeps_formats=True):
        DataStreamWriter.start(make_writer({}, Conf(), "file:///"))
        assert found == ["rows"]


def test_afterwards_queries_start_as_before() -> None:
    before = DataStreamWriter.start
    with fitting(OURS, keeps_formats=True):
        assert DataStreamWriter.start is not before
    assert DataStreamWriter.start is before
