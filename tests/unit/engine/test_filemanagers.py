"""Which queries start with the file manager that renames."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from pyspark.sql.streaming import DataStreamWriter

from balancedstream.engine.filemanagers import FILE_MANAGER, renaming_on_posix_only
from balancedstream.workers.names import CHECKPOINT_LOCATION

RENAMING = "org.example.Renaming"


class Conf(dict[str, str]):
    """The settings of a session."""

    def unset(self, key: str) -> None:
        del self[key]


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
    manager: str = RENAMING,
    checkpoints: str = "",
    default_fs: str = "file:///",
    **keywords: str,
) -> str | None:
    """The file manager of a query at the moment at which it starts."""
    conf = Conf({FILE_MANAGER: manager, CHECKPOINT_LOCATION: checkpoints})
    at_start: list[str | None] = []
    monkeypatch.setattr(
        DataStreamWriter, method, lambda *_, **__: at_start.append(conf.get(FILE_MANAGER))
    )
    with renaming_on_posix_only(RENAMING):
        writer = make_writer(options, conf, default_fs)
        getattr(DataStreamWriter, method)(writer, *args, **keywords)
    (manager_then,) = at_start
    return manager_then


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
    assert (found == RENAMING) is renames


def test_what_start_itself_is_given_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, {}, checkpointLocation="hdfs://nn/q") is None
    assert start(monkeypatch, {}, method="toTable", checkpointLocation="hdfs://nn/q") is None
    assert start(monkeypatch, {}, "s3a://bucket/out") is None


def test_without_a_location_of_its_own_the_sessions_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, {}, checkpoints="s3a://bucket/checkpoints") is None
    assert start(monkeypatch, {"checkpointlocation": "/q"}, default_fs="hdfs://nn") is None


def test_another_file_manager_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "com.example.Own"
    assert start(monkeypatch, {"checkpointlocation": "hdfs://nn/q"}, manager=own) == own


def test_afterwards_queries_start_as_before() -> None:
    before = DataStreamWriter.start
    with renaming_on_posix_only(RENAMING):
        assert DataStreamWriter.start is not before
    assert DataStreamWriter.start is before
