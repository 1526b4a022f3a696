"""The settings of a balanced job, each with its reason; what the user set himself always wins."""

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
UNLOAD_ON_COMMIT = "spark.sql.streaming.stateStore.unloadOnCommit"
DYNAMIC_ALLOCATION = "spark.dynamicAllocation.enabled"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
PIPELINED_UDFS = "spark.python.udf.pipelined.enabled"

MIN_PARTITIONS_PER_EXECUTOR = 4
"""With fewer, a partition is too large a part of an executor's load to be moved to good use."""


class DynamicAllocationError(InvalidInputError):
    """Two parties would set the number of executors."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A Spark setting that a balanced job wants, and why."""

    key: str
    value: str
    reason: str


SETTINGS = (
    Setting(PROVIDER, ROCKSDB, "a partition's state is loaded file by file, not row by row"),
    Setting(CHANGELOG, "true", "a batch writes its changes, not its whole state"),
    Setting(
        CHECKPOINT_FORMAT,
        "2",
        "each commit has an id of its own, so a zombie task can never be taken for its successor",
    ),
    Setting(
        FILE_MANAGER,
        RENAMING_FILE_MANAGER,
        "on POSIX storage Spark's default forks a process for each file it commits",
    ),
    Setting(
        LOCALITY_WAIT_PROCESS,
        "10s",
        "a task waits for the executor that holds its state; afterwards follows the batch time",
    ),
    Setting(
        UNIX_SOCKETS, "true", "a Python function begins sooner in each task than it does over TCP"
    ),
    Setting("spark.ui.showConsoleProgress", "false", "the view shows what is under way"),
    Setting("spark.executor.heartbeatInterval", "2s", "an executor that hangs is noticed soon"),
    Setting(
        "spark.storage.blockManagerHeartbeatTimeoutMs",
        "20000",
        "an executor that is silent for 20 s is replaced; Spark's default is 120 s",
    ),
    Setting("spark.network.timeoutInterval", "2s", "how often silence is looked for"),
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
"""What every balanced job wants, whatever its size."""


def tune(user: Mapping[str, str], executors: int | None) -> tuple[dict[str, str], list[str]]:
    """The settings to add to the user's own, and a warning for each own one that defeats us.

    Args:
        user: what the user set, by any of Spark's ways.
        executors: the most executors there will be, or None where that is not known.

    Returns:
        Settings that the user did not make, and sentences.

    Raises:
        DynamicAllocationError: the user switched dynamic allocation on.

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
            "balancedstream scales by itself (scaling.min_executors, scaling.max_executors)."
        )
        raise DynamicAllocationError(message)
    wanted = {s.key: s.value for s in SETTINGS}
    if executors:
        wanted[SHUFFLE_PARTITIONS] = str(PARTITIONS_PER_EXECUTOR * executors)
    if _is_object_store(user.get(CHECKPOINT_LOCATION, "")):
        # There a rename is a copy that others can see half done: Spark or the user choose.
        del wanted[FILE_MANAGER]
    if LOCALITY_WAIT in user:
        del wanted[LOCALITY_WAIT_PROCESS]
    if user.get(PIPELINED_UDFS, "false").lower() == "true":
        # Spark 4.3 fails every such task over Unix sockets (SPARK-57948).
        del wanted[UNIX_SOCKETS]
    if user.get(PROVIDER, ROCKSDB) != ROCKSDB:
        # Both belong to the RocksDB provider; another one refuses to start with them.
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
            f"{PROVIDER}={provider}: moving a partition reloads its whole state into memory, and "
            "a task that was given up is not fenced off. Remove the setting to have RocksDB."
        )
    if user.get(CHANGELOG, "true").lower() == "false":
        warnings.append(
            f"{CHANGELOG}=false: every batch uploads whole state files; batches are slower."
        )
    if user.get(CHECKPOINT_FORMAT, "2") == "1":
        warnings.append(
            f"{CHECKPOINT_FORMAT}=1: two attempts of one task are not told apart; "
            "set 2, or leave it out."
        )
    if user.get(UNLOAD_ON_COMMIT, "false").lower() == "true":
        warnings.append(
            f"{UNLOAD_ON_COMMIT}=true: every batch loads every partition's state again, so that "
            "no placement can last. Remove the setting."
        )
    wait = user.get(LOCALITY_WAIT_PROCESS, user.get(LOCALITY_WAIT))
    if wait is not None:
        key = LOCALITY_WAIT_PROCESS if LOCALITY_WAIT_PROCESS in user else LOCALITY_WAIT
        warnings.append(
            f"{key}={wait}: a task that waited this long for the executor with its state runs "
            "anywhere, which moves the state. Keep it above the batch time, or leave it out: "
            "balancedstream then keeps it there."
        )
    partitions = user.get(SHUFFLE_PARTITIONS)
    if partitions and executors and int(partitions) < MIN_PARTITIONS_PER_EXECUTOR * executors:
        warnings.append(
            f"{SHUFFLE_PARTITIONS}={partitions} is few for {executors} executors: "
            f"{PARTITIONS_PER_EXECUTOR * executors} would let the load be spread evenly. "
            "The number is fixed in a checkpoint once it exists."
        )
    return warnings
