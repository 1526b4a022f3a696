"""The settings of a balanced job, each with its reason; the user's own settings always win."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from balancedstream.core.sizing import PARTITIONS_PER_EXECUTOR
from balancedstream.errors import InvalidInputError
from balancedstream.workers.names import CHECKPOINT_LOCATION

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
RENAMING_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
LOCALITY_WAIT = "spark.locality.wait"
LOCALITY_WAIT_PROCESS = "spark.locality.wait.process"
SCHEDULER_MODE = "spark.scheduler.mode"
UNLOAD_ON_COMMIT = "spark.sql.streaming.stateStore.unloadOnCommit"
DYNAMIC_ALLOCATION = "spark.dynamicAllocation.enabled"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
PIPELINED_UDFS = "spark.python.udf.pipelined.enabled"

MIN_PARTITIONS_PER_EXECUTOR = 4
"""With fewer, a partition is too large a part of an executor's load for moves to help."""


class DynamicAllocationError(InvalidInputError):
    """Spark and balancedstream would both set the number of executors."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A Spark setting for balanced jobs, and why."""

    key: str
    value: str
    reason: str


SETTINGS = (
    Setting(PROVIDER, ROCKSDB, "a partition's state is restored file by file, not row by row"),
    Setting(CHANGELOG, "true", "a batch writes its changes, not its whole state"),
    Setting(
        CHECKPOINT_FORMAT,
        "2",
        "each commit has an id of its own, so a zombie task is never mistaken for its successor",
    ),
    Setting(
        FILE_MANAGER,
        RENAMING_FILE_MANAGER,
        "on POSIX storage Spark's default forks a process for each file it commits",
    ),
    Setting(
        LOCALITY_WAIT_PROCESS,
        "10s",
        "a task waits for the executor with its state; later the value follows the batch time",
    ),
    Setting(
        SCHEDULER_MODE,
        "FAIR",
        "the jobs that load state ahead of moves do not wait for a batch; yours share one pool, "
        "in which the first comes first, as before",
    ),
    Setting(UNIX_SOCKETS, "true", "a Python function starts sooner in each task than over TCP"),
    Setting("spark.ui.showConsoleProgress", "false", "the live view shows the progress"),
    Setting("spark.executor.heartbeatInterval", "2s", "an executor that hangs is noticed quickly"),
    Setting(
        "spark.storage.blockManagerHeartbeatTimeoutMs",
        "20000",
        "an executor that is silent for 20 s is replaced; Spark's default is 120 s",
    ),
    Setting("spark.network.timeoutInterval", "2s", "how often Spark looks for silent executors"),
    Setting("spark.decommission.enabled", "true", "an executor finishes its tasks before it goes"),
    Setting(
        "spark.storage.decommission.enabled",
        "true",
        "its shuffle blocks go to its peers, so that nothing is computed again",
    ),
    Setting("spark.storage.decommission.shuffleBlocks.enabled", "true", "as above"),
    Setting("spark.storage.decommission.rddBlocks.enabled", "true", "as above, for cached data"),
    Setting(
        "spark.storage.decommission.replicationReattemptInterval",
        "1s",
        "a retiring executor leaves when its blocks are gone, not half a minute later",
    ),
)
"""The settings of every balanced job, of any size."""


def tune(user: Mapping[str, str], executors: int | None) -> tuple[dict[str, str], list[str]]:
    """The settings to add to the user's own, and a warning for each that works against balancing.

    Args:
        user: the user's settings, from any of Spark's sources.
        executors: maximum number of executors; None if it is not known.

    Returns:
        The settings to add, and the warnings.

    Raises:
        DynamicAllocationError: the user turned dynamic allocation on.

    >>> added, warnings = tune({"spark.sql.shuffle.partitions": "12"}, executors=4)
    >>> "spark.sql.shuffle.partitions" in added
    False
    >>> warnings[0][:53]
    'spark.sql.shuffle.partitions=12 is few for 4 executor'
    """
    if user.get(DYNAMIC_ALLOCATION, "false").lower() == "true":
        message = (
            f"{DYNAMIC_ALLOCATION}=true: Spark and balancedstream would both set the number of "
            "executors. Nothing was started and no data was touched. Remove the setting; "
            "balancedstream scales itself (scaling.min_executors, scaling.max_executors)."
        )
        raise DynamicAllocationError(message)
    wanted = {s.key: s.value for s in SETTINGS}
    if executors:
        wanted[SHUFFLE_PARTITIONS] = str(PARTITIONS_PER_EXECUTOR * executors)
    if _is_object_store(user.get(CHECKPOINT_LOCATION, "")):
        # There a rename is a copy, which others can see incomplete, so Spark or the user chooses.
        del wanted[FILE_MANAGER]
    if LOCALITY_WAIT in user:
        del wanted[LOCALITY_WAIT_PROCESS]
    if user.get(PIPELINED_UDFS, "false").lower() == "true":
        # Spark 4.3 fails every such task over Unix sockets (SPARK-57948).
        del wanted[UNIX_SOCKETS]
    if user.get(PROVIDER, ROCKSDB) != ROCKSDB:
        # Both belong to the RocksDB provider; other providers refuse to start with them.
        del wanted[CHANGELOG], wanted[CHECKPOINT_FORMAT]
    added = {key: value for key, value in wanted.items() if key not in user}
    return added, _find_conflicts(user, executors)


def _is_object_store(location: str) -> bool:
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme not in {"file", "hdfs"}


def _find_conflicts(user: Mapping[str, str], executors: int | None) -> list[str]:
    warnings = []
    if user.get(PROVIDER, ROCKSDB) != ROCKSDB:
        provider = user[PROVIDER].rpartition(".")[2]
        warnings.append(
            f"{PROVIDER}={provider}: a move restores the partition's whole state into memory, and "
            "an abandoned task is not fenced off. Remove the setting to use RocksDB."
        )
    if user.get(CHANGELOG, "true").lower() == "false":
        warnings.append(
            f"{CHANGELOG}=false: every batch uploads whole state files, so batches are slower."
        )
    if user.get(CHECKPOINT_FORMAT, "2") == "1":
        warnings.append(
            f"{CHECKPOINT_FORMAT}=1: Spark cannot distinguish two attempts of one "
            "task; set 2, or remove the setting."
        )
    if user.get(UNLOAD_ON_COMMIT, "false").lower() == "true":
        warnings.append(
            f"{UNLOAD_ON_COMMIT}=true: every batch restores every partition's state, so "
            "no placement lasts. Remove the setting."
        )
    wait = user.get(LOCALITY_WAIT_PROCESS, user.get(LOCALITY_WAIT))
    if wait is not None:
        key = LOCALITY_WAIT_PROCESS if LOCALITY_WAIT_PROCESS in user else LOCALITY_WAIT
        warnings.append(
            f"{key}={wait}: a task that waited this long for the executor with its state runs "
            "anywhere, which moves the state. Keep it above the batch time, or remove it: "
            "balancedstream then keeps it there."
        )
    partitions = user.get(SHUFFLE_PARTITIONS)
    if partitions and executors and int(partitions) < MIN_PARTITIONS_PER_EXECUTOR * executors:
        warnings.append(
            f"{SHUFFLE_PARTITIONS}={partitions} is few for {executors} executors: "
            f"{PARTITIONS_PER_EXECUTOR * executors} would allow an even load. "
            "A checkpoint, once it exists, fixes the number."
        )
    return warnings
