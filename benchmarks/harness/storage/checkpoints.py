"""Where the checkpoints of disturbed runs are: on this disk, slow, or in an object store."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.storage import SCHEME, build_slow_storage
from harness.storage.faulty import FaultyStore
from harness.storage.objects import describe_access, serve_objects

REPOSITORY = Path(__file__).parents[3]

STORES = ("disk", "s3", "slow-s3", "failing-s3")

DELAY_S = 0.02
"""Of each request to a slow store."""

REFUSED_SHARE = 0.05
"""Of the requests to a failing store."""

OUTAGE_S = 10.0
"""So long a failing store is away altogether, ..."""

BETWEEN_OUTAGES_S = (15.0, 60.0)
"""... and so long it is there before that."""

BUCKET = "checkpoints"


@dataclass(frozen=True)
class Storage:
    """Of checkpoints.

    Attributes:
        folder: where they are on this machine.
        location: the same folder as Spark is told it.
        settings: Spark's, to reach it.
    """

    folder: Path
    location: str
    settings: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def open_storage(store: str, open_ms: int, work: Path) -> Iterator[Storage]:
    """The storage of runs in a folder, for as long as this is open.

    Args:
        store: one of `STORES`.
        open_ms: what an open of a file takes on the disk; 0 for the disk alone.
        work: the folder.
    """
    folder = work / BUCKET
    folder.mkdir(parents=True, exist_ok=True)
    if store == "disk":
        settings = build_slow_storage(work, open_ms) if open_ms else {}
        yield Storage(folder, f"{SCHEME}:{folder}" if open_ms else str(folder), settings)
        return
    with ExitStack() as stack:
        url = stack.enter_context(serve_objects(work))
        if store != "s3":
            url = stack.enter_context(_put_before(url, store))
        yield Storage(folder, f"s3a://{BUCKET}", describe_s3(url))


def describe_s3(url: str) -> dict[str, str]:
    """Spark's settings with Hadoop's S3A, which comes from Maven Central."""
    sys.path.append(str(REPOSITORY / "tests" / "common"))
    from jars import fetch_jars  # noqa: PLC0415 - of the tests

    jars = fetch_jars(REPOSITORY / "tests" / "e2e" / "apps" / "pom.xml") / "*"
    cloud = "org.apache.spark.internal.io.cloud"
    return {
        "spark.driver.extraClassPath": str(jars),
        "spark.executor.extraClassPath": str(jars),
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{cloud}.AbortableStreamBasedCheckpointFileManager"
        ),
        **{f"spark.hadoop.{name}": value for name, value in describe_access(url).items()},
    }


@contextmanager
def _put_before(url: str, store: str) -> Iterator[str]:
    """A proxy that makes a store slow or failing; gives its URL."""
    with closing(FaultyStore("127.0.0.1", url)) as proxy:
        if store == "slow-s3":
            proxy.delay_s = DELAY_S
            yield proxy.url
            return
        proxy.refused_share = REFUSED_SHARE
        ended = threading.Event()
        outages = threading.Thread(target=_take_away, args=(proxy, ended), daemon=True)
        outages.start()
        try:
            yield proxy.url
        finally:
            ended.set()
            outages.join()


def _take_away(store: FaultyStore, ended: threading.Event) -> None:
    while not ended.wait(random.uniform(*BETWEEN_OUTAGES_S)):
        store.refuses = True
        ended.wait(OUTAGE_S)
        store.refuses = False
