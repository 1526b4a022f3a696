"""What differs between versions of Spark: the one place that knows.

In the driver's JVM, `ScalaCollections.java` is its counterpart; all else there is compiled against
the Spark that runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyspark

from balancedstream.errors import BalancedStreamError
from balancedstream.version import TESTED_SPARK

Version = tuple[int, int]
"""Major and minor number."""

COMMIT_IDS_SINCE: Version = (4, 1)
"""4.0 has them too, but one format for a whole executor: that of the query which uses RocksDB first
(`RocksDBCheckpointMetadata.VERSION`). An application whose queries have both formats fails."""

UNIX_SOCKETS_SINCE: Version = (4, 1)
RESTORE_TIMES_SINCE: Version = (4, 1)
LOADING_AHEAD_SINCE: Version = (4, 1)
FORMATS_KEPT_SINCE: Version = (4, 3)
PACKAGES_MOVED_IN: Version = (4, 1)
MAX_BYTES_SINCE: Version = (4, 0)
REPARTITION_SINCE: Version = (4, 2)

FEATURES: dict[str, tuple[Version, str]] = {
    "balanced": ((4, 2), "Python data sources that limit what a batch reads"),
    "shuffle": ((4, 1), "`DataFrame.repartitionById`"),
}
"""What a script can call: the first version of Spark with it, and what it needs of it."""


class UnsupportedSparkError(BalancedStreamError):
    """This version of Spark lacks what a feature needs; nothing was started."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a version of Spark has.

    Attributes:
        version: its major and minor number.
        renaming_file_manager: its class of the file manager that commits a checkpoint's files by
            renaming them.
        has_commit_ids: any query's checkpoint can give each commit of a state store an id of its
            own (format 2), so two attempts of a task are told apart.
        keeps_formats: a query goes on in the format of its checkpoint, whatever the session says.
        has_unix_sockets: Python workers can be reached over Unix sockets.
        reports_restores: tasks report how long their state store took to load.
        loads_ahead: an executor can open a state store before its partition moves there.
        limits_bytes: what a batch reads of files can be limited by bytes.
    """

    version: Version
    renaming_file_manager: str
    has_commit_ids: bool
    keeps_formats: bool
    has_unix_sockets: bool
    reports_restores: bool
    loads_ahead: bool
    limits_bytes: bool

    def list_weaknesses(self) -> tuple[str, ...]:
        """A sentence for each thing that is weaker than with a newer Spark.

        >>> find_traits("4.3.0").list_weaknesses()
        ()
        """
        here = f"Spark {name_version(self.version)}"
        found = []
        if not self.loads_ahead:
            can = f"(Spark {name_version(LOADING_AHEAD_SINCE)} can)"
            found.append(
                f"{here} cannot load state ahead of moves {can}: a moved partition's first batch "
                "waits for its state. Results are right."
            )
        if not self.reports_restores:
            does = f"(Spark {name_version(RESTORE_TIMES_SINCE)} does)"
            found.append(
                f"{here} does not say how long state takes to load {does}: what moves cost is "
                "learnt from how much longer their first tasks take."
            )
        if not self.has_commit_ids:
            can = f"(Spark {name_version(COMMIT_IDS_SINCE)} can)"
            found.append(
                f"{here} cannot tell two attempts of a task apart in a checkpoint {can}: balanced "
                "or not, a task that was given up and still writes is not fenced off."
            )
        return tuple(found)


def find_traits(version: str) -> Traits:
    """The traits of a version; of one newer than all that are known, those of the newest.

    >>> find_traits("4.0.2").has_commit_ids, find_traits("4.1.4").has_commit_ids
    (False, True)
    """
    number = read_version(version)
    streaming = "org.apache.spark.sql.execution.streaming"
    package = f"{streaming}.checkpointing" if number >= PACKAGES_MOVED_IN else streaming
    return Traits(
        version=number,
        renaming_file_manager=f"{package}.FileSystemBasedCheckpointFileManager",
        has_commit_ids=number >= COMMIT_IDS_SINCE,
        keeps_formats=number >= FORMATS_KEPT_SINCE,
        has_unix_sockets=number >= UNIX_SOCKETS_SINCE,
        reports_restores=number >= RESTORE_TIMES_SINCE,
        loads_ahead=number >= LOADING_AHEAD_SINCE,
        limits_bytes=number >= MAX_BYTES_SINCE,
    )


def read_version(text: str) -> Version:
    """Major and minor number of a version.

    >>> read_version("4.0.2.dev1"), read_version("3.5.6-amzn-1")
    ((4, 0), (3, 5))
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        message = f"no version of Spark: {text!r:.80}"
        raise ValueError(message)
    return int(found[1]), int(found[2])


def name_version(version: Version) -> str:
    """A version as people write it.

    >>> name_version((4, 2))
    '4.2'
    """
    return ".".join(map(str, version))


OLDEST = read_version(TESTED_SPARK[0])
NEWEST = find_traits(TESTED_SPARK[-1])


def is_tested(version: str) -> bool:
    """Whether the tests run with this version.

    >>> is_tested("4.3.1"), is_tested("3.4.0")
    (True, False)
    """
    return name_version(read_version(version)) in TESTED_SPARK


def check_feature(name: str, version: str = pyspark.__version__) -> None:
    """Checks that a script's PySpark has the classes that one of `FEATURES` uses.

    Raises:
        UnsupportedSparkError: it lacks it; the message names the first version that has it.
    """
    first, what = FEATURES[name]
    if read_version(version) >= first:
        return
    message = (
        f"balancedstream.{name} needs {what}, which Spark has from {name_version(first)} on, and "
        f"this is PySpark {version}. Nothing was started, no data was touched. Use PySpark "
        f"{name_version(first)} or newer, or leave it out: state partitions are balanced without "
        "it."
    )
    raise UnsupportedSparkError(message)


def check_repartition(version: str = pyspark.__version__) -> None:
    """Checks that this Spark can change the number of a checkpoint's state partitions.

    Raises:
        UnsupportedSparkError: it cannot; the message names the first version that can.

    >>> check_repartition("4.2.1")
    """
    if read_version(version) >= REPARTITION_SINCE:
        return
    first = name_version(REPARTITION_SINCE)
    message = (
        f"repartition needs Spark {first} or newer, which can write state offline, and this is "
        f"Spark {version}. Nothing was changed. Let the query run with Spark {first} or newer and "
        "type this command with the same version, or begin a new checkpoint with the number that "
        "you want"
    )
    raise UnsupportedSparkError(message)


def to_scala_list(jvm: Any, values: Iterable[Any] = ()) -> Any:
    """A Scala `List`, made with what Scala 2.12 (Spark 3.5) and 2.13 both have."""
    items = jvm.java.util.ArrayList()
    for value in values:
        items.add(value)
    return jvm.scala.collection.JavaConverters.asScalaBuffer(items).toList()
