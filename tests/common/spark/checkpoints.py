"""Checkpoints as Spark writes them, for tests that need no Spark; and what is in a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from balancedstream.core.logs import PARTITIONS
from balancedstream.core.repartition import PROVIDER, ROCKSDB, STRICT

LONG_AGO_S = 1_000_000_000.0

AGGREGATION = "stateStoreSave"


def write_checkpoint(
    path: Path,
    partitions: tuple[int, ...] = (3, 3, 3),
    *,
    uncommitted: int = 0,
    conf: dict[str, str] | None = None,
    version: str = "v2",
    operator: str = AGGREGATION,
    offset: str = '{"offset":500}',
) -> Path:
    """A checkpoint with a batch for each number of partitions, begun long ago.

    Args:
        path: where it goes.
        partitions: of each batch, the oldest first.
        uncommitted: so many of the newest batches are.
        conf: settings that differ from those of a query that can be repartitioned.
        version: of the commits.
        operator: Spark's name of the only one; empty for none.
        offset: of the only source.
    """
    for folder in ("offsets", "commits", "state/0/0", "state/0/_metadata"):
        (path / folder).mkdir(parents=True, exist_ok=True)
    (path / "metadata").write_text('{"id":"6f1a7a36-6a0f-4b63-a9ae-2e3c4b1b1f3c"}')
    for batch, count in enumerate(partitions):
        own = {PROVIDER: ROCKSDB, STRICT: "true", PARTITIONS: str(count)} | (conf or {})
        (path / "offsets" / str(batch)).write_text(f"v1\n{json.dumps({'conf': own})}\n{offset}")
        if batch < len(partitions) - uncommitted:
            (path / "commits" / str(batch)).write_text(f'{version}\n{{"nextBatchWatermarkMs":0}}')
            (path / "state/0/0" / f"{batch + 1}.changelog").write_bytes(b"x" * 100)
    if operator:
        record = {
            "operatorInfo": {"operatorId": 0, "operatorName": operator},
            "stateStoreInfo": [{"storeName": "default", "numPartitions": partitions[0]}],
        }
        (path / "state/0/_metadata/metadata").write_text(f"v1\n{json.dumps(record)}")
    rest(path)
    return path


def rest(path: Path) -> None:
    """Makes the checkpoint's batches as old as those of a query that was stopped long ago."""
    for file in (path / "commits").iterdir():
        os.utime(file, (LONG_AGO_S, LONG_AGO_S))


def read_tree(path: Path) -> dict[str, bytes | None]:
    """Name to content of all that is in a folder; None for folders."""
    return {
        str(each.relative_to(path)): each.read_bytes() if each.is_file() else None
        for each in path.rglob("*")
    }
