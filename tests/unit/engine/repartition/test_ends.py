"""Which checkpoints of an application a repartition writes anew, and when that is known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkpoints import write_checkpoint
from spark_versions import needs_spark

from balancedstream.engine.repartition.ends import QueryEnds
from balancedstream.engine.traits import REPARTITION_SINCE

pytestmark = needs_spark(REPARTITION_SINCE)


def find(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> tuple[str, ...]:
    """The checkpoints of an application whose queries have these."""
    spark: Any = SimpleNamespace(version="4.3.0")
    ends = QueryEnds(spark)
    queries = [
        SimpleNamespace(resolvedCheckpointRoot=lambda path=path: str(path)) for path in paths
    ]
    monkeypatch.setattr(ends, "_list_queries", lambda: queries)
    return ends.find_checkpoints()


def begin_nothing(path: Path) -> Path:
    """The checkpoint of a query to which no row has come yet."""
    for name in ("offsets", "commits", "state"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"6c6a5c55-2ab0-4d9c-9d0a-3a4e1a5e9f11"}')
    return path


def test_a_query_to_which_nothing_has_come_yet_holds_no_other_one_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, quiet = write_checkpoint(tmp_path / "busy"), begin_nothing(tmp_path / "quiet")
    assert find(monkeypatch, busy, quiet) == (str(busy),)
    assert find(monkeypatch, quiet) == (), "it is not known yet whether it will have state"


def test_a_query_whose_first_batch_is_under_way_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = write_checkpoint(tmp_path / "busy")
    first = write_checkpoint(tmp_path / "first", (3,), uncommitted=1)
    assert find(monkeypatch, busy, first) == ()
