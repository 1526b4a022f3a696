"""The settings of a balanced job, each with its reason; the user's own settings always win."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from balancedstream.core import logs, repartition
from balancedstream.core.sizing import PARTITIONS_PER_EXECUTOR
from balancedstream.engine.session.filemanagers import FILE_MANAGER
from balancedstream.engine.traits import (
    COMMIT_IDS_SINCE,
    LOADING_AHEAD_SINCE,
    NEWEST,
    PACKAGES_MOVED_IN,
    UNIX_SOCKETS_SINCE,
    Traits,
    name_version,
)
from balancedstream.errors import InvalidInputError

ROCKSDB, PROVIDER = repartition.ROCKSDB, repartition.PROVIDER
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
SHUFFLE_PARTITIONS = logs.PARTITIONS
LOCALITY_WAIT = "spark.locality.wait"
LOCALITY_WAIT_PROCESS = "spark.locality.wait.process"
LOCALITY_WAIT_IS_OURS = "spark.locality.wait.balancedstream"
"""Is set while that one is balancedstream's, which follows the batch time. An agent that was killed
leaves it behind, so it is none of the settings that the next agent reads."""
SCHEDULER_MODE = "spark.scheduler.mode"
UNLOAD_ON_COMMIT = "spark.sql.streaming.stateStore.unloadOnCommit"
INSTANCES = "spark.executor.instances"
DYNAMIC_ALLOCATION = "spark.dynamicAllocation.enabled"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
PIPELINED_UDFS = "spark.python.udf.pipelined.enabled"

PROCESS_TREE = "spark.executor.processTreeMetrics.enabled"
HEARTBEAT = "spark.executor.heartbeatInterval"
HEARTBEAT_TIMEOUT = "spark.storage.blockManagerHeartbeatTimeoutMs"
HEARTBEAT_CHECKS = "spark.network.timeoutInterval"
HEARTBEATS = (HEARTBEAT, HEARTBEAT_TIMEOUT, HEARTBEAT_CHECKS)
NETWORK_TIMEOUT = "spark.network.timeout"
MIN_HEARTBEAT_S = 2
MAX_HEARTBEAT_S = 10
HEARTBEATS_PER_S = 100
"""With 1,000 executors, one each in 2 s would be 500 a second on one thread of the driver."""

SILENT_HEARTBEATS = 10
"""After so many missed ones an executor counts as lost. Where many share a driver and storage,
pauses are longer, and so is this time."""

QUERY_SETTINGS = (PROVIDER, CHANGELOG, CHECKPOINT_FORMAT, FILE_MANAGER, SHUFFLE_PARTITIONS)
"""Those that each query gets when it starts (`engine.fitting`), and not its session."""

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
        "each commit has an id of its own, so a zombie task is never mistaken for its successor; "
        f"from Spark {name_version(COMMIT_IDS_SINCE)} on",
    ),
    Setting(
        FILE_MANAGER,
        NEWEST.renaming_file_manager,
        "on POSIX storage Spark's default forks a process for each file it commits; a query whose "
        "checkpoint or output is elsewhere keeps Spark's; before Spark "
        f"{name_version(PACKAGES_MOVED_IN)}, its package is without `checkpointing`",
    ),
    Setting(
        SCHEDULER_MODE,
        "FAIR",
        "the jobs that load state ahead of moves do not wait for a batch; yours share one pool, "
        "in which the first comes first, as before; from Spark "
        f"{name_version(LOADING_AHEAD_SINCE)} on",
    ),
    Setting(
        UNIX_SOCKETS,
        "true",
        "a Python function starts sooner in each task than over TCP; from Spark "
        f"{name_version(UNIX_SOCKETS_SINCE)} on",
    ),
    Setting("spark.ui.showConsoleProgress", "false", "the live view shows the progress"),
    Setting(
        HEARTBEAT,
        f"{MIN_HEARTBEAT_S}s",
        f"an executor that hangs is noticed quickly; longer with more than "
        f"{MIN_HEARTBEAT_S * HEARTBEATS_PER_S} executors, up to Spark's own {MAX_HEARTBEAT_S} s, "
        "because the driver answers each one",
    ),
    Setting(
        HEARTBEAT_TIMEOUT,
        str(SILENT_HEARTBEATS * MIN_HEARTBEAT_S * 1000),
        f"an executor that is silent for {SILENT_HEARTBEATS} heartbeats is replaced; Spark's "
        "default is 120 s",
    ),
    Setting(HEARTBEAT_CHECKS, f"{MIN_HEARTBEAT_S}s", "how often Spark looks for silent executors"),
    Setting(
        PROCESS_TREE,
        "true",
        "an executor's heartbeat says what its processes take of memory, those of Python included",
    ),
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


def tune(
    user: Mapping[str, str], executors: int | None, spark: Traits = NEWEST
) -> tuple[dict[str, str], list[str]]:
    """The settings to add to the user's own, and a warning for each that works against balancing.

    Args:
        user: the user's settings, from any of Spark's sources.
        executors: maximum number of executors; None if it is not known.
        spark: what the driver's version has.

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
    wanted = {s.key: s.value for s in SETTINGS} | {FILE_MANAGER: spark.renaming_file_manager}
    if not spark.has_commit_ids:
        del wanted[CHECKPOINT_FORMAT]
    if not spark.has_unix_sockets:
        del wanted[UNIX_SOCKETS]
    if not spark.loads_ahead:
        del wanted[SCHEDULER_MODE]
    if executors:
        wanted[SHUFFLE_PARTITIONS] = str(PARTITIONS_PER_EXECUTOR * executors)
    wanted |= _pace_heartbeats(executors or _guess_executors(user))
    if user.keys() & {*HEARTBEATS, NETWORK_TIMEOUT}:
        # One without the others would lose executors that are well, 30 s apart after 20 s. But
        # Spark may look often; with a timeout below its own 60 s it would not start otherwise.
        del wanted[HEARTBEAT], wanted[HEARTBEAT_TIMEOUT]
        wanted[HEARTBEAT_CHECKS] = f"{MIN_HEARTBEAT_S}s"
    if user.get(PIPELINED_UDFS, "false").lower() == "true":
        # Spark 4.3 fails every such task over Unix sockets (SPARK-57948).
        wanted.pop(UNIX_SOCKETS, None)
    added = {key: value for key, value in wanted.items() if key not in user}
    return added, _find_conflicts(user, executors, spark)


def find_own_wait(settings: Mapping[str, str]) -> str:
    """What to tell a user who has set how long tasks wait; empty if it is for us to set.

    Only the wait for an executor counts: `spark.locality.wait.node` and `.rack` come after it, and
    nothing here touches them.

    >>> find_own_wait({"spark.locality.wait": "0s"})[:44]
    'spark.locality.wait=0s is yours and stays: n'
    >>> find_own_wait({"spark.locality.wait.node": "0s"})
    ''
    """
    if LOCALITY_WAIT_IS_OURS in settings:
        return ""
    key = next((k for k in (LOCALITY_WAIT_PROCESS, LOCALITY_WAIT) if k in settings), None)
    if key is None:
        return ""
    waits = settings[key].strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz ").strip("0")
    what = (
        "a task that has waited this long for the executor with its state runs anywhere"
        if waits
        else "no task waits for the executor with its state, and each runs where a core is free"
    )
    return (
        f"{key}={settings[key]} is yours and stays: {what}, which moves the state, so moves may "
        "not last. Results are right. Without this setting, balancedstream fits the wait to the "
        "batches."
    )


def _guess_executors(user: Mapping[str, str]) -> int:
    """The most executors that the user's settings speak of; 0 if they do not."""
    partitions = int(user.get(SHUFFLE_PARTITIONS, "0"))
    return max(int(user.get(INSTANCES, "0")), partitions // PARTITIONS_PER_EXECUTOR)


def _pace_heartbeats(executors: int) -> dict[str, str]:
    """Heartbeats that a driver with so many executors can answer, and how long it waits for one.

    >>> _pace_heartbeats(1000)["spark.executor.heartbeatInterval"]
    '10s'
    """
    interval_s = min(max(math.ceil(executors / HEARTBEATS_PER_S), MIN_HEARTBEAT_S), MAX_HEARTBEAT_S)
    return {
        HEARTBEAT: f"{interval_s}s",
        HEARTBEAT_TIMEOUT: str(SILENT_HEARTBEATS * interval_s * 1000),
        HEARTBEAT_CHECKS: f"{interval_s}s",
    }


def _find_conflicts(user: Mapping[str, str], executors: int | None, spark: Traits) -> list[str]:
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
    if spark.has_commit_ids and user.get(CHECKPOINT_FORMAT) == "1":
        warnings.append(
            f"{CHECKPOINT_FORMAT}=1: Spark cannot distinguish two attempts of one "
            "task; set 2, or remove the setting."
        )
    if user.get(UNLOAD_ON_COMMIT, "false").lower() == "true":
        warnings.append(
            f"{UNLOAD_ON_COMMIT}=true: every batch restores every partition's state, so "
            "no placement lasts. Remove the setting."
        )
    partitions = user.get(SHUFFLE_PARTITIONS)
    if partitions and executors and int(partitions) < MIN_PARTITIONS_PER_EXECUTOR * executors:
        warnings.append(
            f"{SHUFFLE_PARTITIONS}={partitions} is few for {executors} executors: "
            f"{PARTITIONS_PER_EXECUTOR * executors} would allow an even load. "
            "A checkpoint, once it exists, fixes the number."
        )
    return warnings
