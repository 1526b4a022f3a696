"""Decides whether and how the number of state partitions of a checkpoint can be changed.

Spark changes it offline, as a micro-batch without rows (`OfflineStateRepartitionRunner`). It writes
the batch's offsets before it looks at what it refuses, and then the query does not start any more.
So all that Spark refuses is refused here, before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal, NoReturn

from balancedstream.core.logs import MARK, PARTITIONS, Format
from balancedstream.errors import RepartitionError

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution"

MOST_PARTITIONS = 100_000
"""Each is a task, a folder and a store: nobody wants more, and a mistyped number is found."""

MOVABLE = frozenset({
    "StatefulStreamlineAggregate", "applyInPandasWithState", "dedupe", "dedupeWithinWatermark",
    "flatMapGroupsWithState", "sessionWindowStateStoreSaveExec", "stateStoreSave",
    "symmetricHashJoin", "transformWithStateExec", "transformWithStateInPandasExec",
    "transformWithStateInPySparkExec",
})  # fmt: skip
"""Operators of whose keys Spark knows the partition (`StatePartitionKeyExtractorFactory`)."""

KEY_S = 9e-6
"""Measured: 400,000 keys of an aggregation, in one process."""

KEY_BYTES = 50
"""Of state on disk, of such a key; a checkpoint does not say how many keys it has."""

STORE_PARTITION_S = 0.15
"""Measured: opening and writing one partition of one store, in one process."""

START_S = 15.0
"""Until a session of Spark has started and read its first store."""

READS = 3
"""The state is read before, by Spark itself, and after; each partition before is opened twice, and
each one after is written and read."""

GROWTH = 4
"""Old versions of state stay for a while; state files were seen to rise up to fourfold."""

QUIET_GAPS = 3
LEAST_QUIET_S = 2.0
MOST_QUIET_S = 60.0


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator of a checkpoint.

    Attributes:
        id: Spark's operator id within the query.
        name: Spark's short name.
        stores: names of its state stores.
        state_bytes: of its files on disk, all versions together.
        versions: how many versions of its state there are files of.
    """

    id: int
    name: str
    stores: tuple[str, ...]
    state_bytes: int
    versions: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the files of a checkpoint say.

    Attributes:
        planned: the newest batch in the offset log; None if there is none.
        committed: the newest batch in the commit log; None if there is none.
        conf: the settings of batch `planned`.
        offsets: those offsets of batch `planned` that are objects of JSON.
        partitions: the number of state partitions of batch `planned`.
        partitions_before: the number of partitions of the batch before `planned`; None if that
            batch is not there.
        format: of the state.
        operators: by their ids.
        has_written: whether there are state files of batch `planned`.
    """

    planned: int | None
    committed: int | None
    conf: Mapping[str, str]
    offsets: Sequence[Mapping[str, Any]]
    partitions: int
    partitions_before: int | None
    format: Format
    operators: tuple[Operator, ...]
    has_written: bool


Stage = Literal["empty", "plain", "unfinished", "half-done", "done"]
"""`plain`: the last batch was one of the query. `unfinished`: such a batch was begun, and is not
committed. `half-done`: a repartition was begun. `done`: the last batch was a repartition."""

Step = Literal["begin", "finish", "verify", "leave"]
"""`leave`: the query has the number already, so the same command may be typed again."""


def find_stage(found: Checkpoint) -> Stage:
    """Where a checkpoint is.

    A query never changes the number by itself, so a batch with another number is a repartition
    (`OfflineStateRepartitionUtils.isRepartitionBatch`).

    >>> find_stage(Checkpoint(4, 3, {}, (), 6, 3, "2", (), False))
    'half-done'
    >>> find_stage(Checkpoint(4, 4, {}, (), 6, 3, "2", (), True))
    'done'
    >>> find_stage(Checkpoint(4, 3, {}, (), 6, 6, "2", (), False))
    'unfinished'
    """
    if found.planned is None or found.committed is None:
        return "empty"
    is_repartition = found.partitions_before not in {None, found.partitions}
    if found.planned == found.committed:
        return "done" if is_repartition else "plain"
    if is_repartition and found.planned == found.committed + 1:
        return "half-done"
    return "unfinished"


def choose_step(found: Checkpoint, partitions: int) -> Step:
    """What is to be done for a number of state partitions.

    Raises:
        RepartitionError: it cannot be done; the message says why, and what to do.

    >>> operator = Operator(0, "dedupe", ("default",), 1000, 2)
    >>> conf = {PROVIDER: ROCKSDB, STRICT: "true"}
    >>> choose_step(Checkpoint(4, 4, conf, (), 6, 6, "2", (operator,), True), 12)
    'begin'
    """
    if not 1 <= partitions <= MOST_PARTITIONS:
        _refuse(f"--partitions: must be a number from 1 to {MOST_PARTITIONS:,}, not {partitions}")
    stage = find_stage(found)
    if stage == "empty":
        _refuse(
            "the checkpoint has no committed batch, so there is no state yet. Set "
            f"{PARTITIONS}={partitions} where the query starts, and begin a new checkpoint"
        )
    if stage == "unfinished":
        _refuse(
            f"batch {found.planned} was begun and is not committed: the query still runs, or it "
            "was interrupted. Stop the query. If it is stopped, start it once more with "
            "trigger(availableNow=True), which finishes the batch and ends, and then type this "
            "command again"
        )
    if stage == "half-done" and partitions != found.partitions:
        _refuse(
            f"a repartition to {found.partitions} was begun and is not finished. Finish it with "
            f"--partitions {found.partitions}{_or_undo(found)}, and then choose another number"
        )
    if stage == "plain" and partitions == found.partitions:
        return "leave"
    _check_state(found)
    if stage == "half-done":
        return "finish"
    return "verify" if partitions == found.partitions else "begin"


def needs_repartition(found: Checkpoint) -> bool:
    """Whether the query of a checkpoint that is still written to has state to repartition.

    Raises:
        RepartitionError: its state cannot be; the message says why.

    >>> needs_repartition(Checkpoint(4, 3, {}, (), 6, 6, "2", (), True))
    False
    """
    if found.operators:
        _check_state(found)
    return bool(found.operators)


def check_undo(found: Checkpoint, undone: int | None = None) -> bool:
    """Whether there is a repartition to undo.

    Args:
        found: what there is.
        undone: the number of the repartition that is meant, so that the same command again undoes
            none before it; None for the last one, whatever its number.

    Raises:
        RepartitionError: it cannot be undone; the message says why, and what to do.

    >>> conf = {PROVIDER: ROCKSDB, STRICT: "true"}
    >>> done = Checkpoint(4, 4, conf, (), 6, 3, "2", (), True)
    >>> check_undo(done), check_undo(done, 6), check_undo(done, 12)
    (True, True, False)
    """
    stage = find_stage(found)
    is_repartition = stage in {"half-done", "done"}
    if undone not in {None, found.partitions} and stage != "half-done":
        return False
    if not is_repartition or undone not in {None, found.partitions}:
        _refuse(
            f"--undo: the last batch of the checkpoint is none of a repartition{_name(undone)}. A "
            "repartition can be undone only until the query commits its next batch; after it, "
            "repartition back"
        )
    if not can_undo(found):
        then = (
            f"finish it with --partitions {found.partitions}, and repartition back"
            if stage == "half-done"
            else f"repartition back with --partitions {found.partitions_before}"
        )
        _refuse(
            "--undo: the checkpoint has format 1, whose state files have no ids: files of the "
            "repartition would be taken for those of later batches, with wrong results. Instead "
            f"{then}"
        )
    return True


def _name(undone: int | None) -> str:
    return "" if undone is None else f" to {undone} state partitions"


def can_undo(found: Checkpoint) -> bool:
    """Whether a repartition can be undone once it is begun, or is still to begin.

    >>> can_undo(Checkpoint(4, 4, {}, (), 6, 6, "1", (), True))
    False
    """
    is_untouched = find_stage(found) == "half-done" and not found.has_written
    return found.format == "2" or is_untouched


def _or_undo(found: Checkpoint) -> str:
    return ", or go back with --undo" if can_undo(found) else ""


def _check_state(found: Checkpoint) -> None:
    provider = found.conf.get(PROVIDER, "")
    if provider != ROCKSDB:
        name = provider.rpartition(".")[2] or "Spark's default"
        way = _or_undo(found) if find_stage(found) == "half-done" else ""
        _refuse(
            f"the state is kept by {name}, and Spark repartitions that of RocksDB only{way}. Begin "
            f"a new checkpoint with {PROVIDER}={ROCKSDB}"
        )
    if found.conf.get(STRICT, "false") != "true":
        _refuse(
            f"the query was begun with {STRICT}=false, or before Spark 3.3: its rows are not "
            "placed by all keys, so it is unknown where its state belongs. Begin a new checkpoint"
        )
    if not found.operators:
        _refuse(
            "the checkpoint names no stateful operator: the query has no state, or it was never "
            "run with Spark 4.0 or newer, which writes their names"
        )
    for operator in found.operators:
        if operator.name not in MOVABLE:
            _refuse(
                f"operator {operator.id} is {operator.name}, whose state Spark cannot repartition. "
                "Begin a new checkpoint"
            )
    if any(MARK in offset for offset in found.offsets):
        _refuse(
            "the query uses balanced(...), whose routes name state partitions: with another "
            "number, keys would not find their state. Begin a new checkpoint"
        )


def _refuse(problem: str) -> NoReturn:
    message = f"{problem}. Nothing was changed."
    raise RepartitionError(message)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a repartition will take.

    Attributes:
        duration_s: with the comparison of all state, in seconds.
        disk_bytes: more that the checkpoint takes until old versions are removed.
    """

    duration_s: float
    disk_bytes: int


def estimate(found: Checkpoint, partitions: int) -> Estimate:
    """Roughly what a repartition takes in one process on this machine.

    >>> operator = Operator(0, "dedupe", ("a",), 50 * 10**6, 1)
    >>> found = Checkpoint(4, 4, {}, (), 6, 6, "2", (operator,), True)
    >>> estimate(found, 20)
    Estimate(duration_s=49.8, disk_bytes=150000000)
    """
    state_bytes = sum(operator.state_bytes for operator in found.operators)
    stores = sum(len(operator.stores) for operator in found.operators)
    return Estimate(
        duration_s=estimate_duration_s(state_bytes, stores, found.partitions, partitions),
        disk_bytes=(GROWTH - 1) * state_bytes,
    )


def estimate_duration_s(state_bytes: int, stores: int, before: int, after: int) -> float:
    """Roughly the seconds that a repartition takes, with the comparison of all state.

    Args:
        state_bytes: of all stores.
        stores: how many each partition has.
        before: partitions before.
        after: partitions after.
    """
    keys_s = READS * KEY_S * state_bytes / KEY_BYTES
    return START_S + keys_s + STORE_PARTITION_S * stores * 2 * (before + after)


def choose_quiet_s(written_at_s: Sequence[float]) -> float:
    """How long nothing is written before a query counts as stopped, in seconds.

    A query that waits for rows writes nothing, so this is no proof.

    Args:
        written_at_s: when the last batches were committed, in any order.

    >>> choose_quiet_s([100.0, 105.0, 110.0]), choose_quiet_s([7.0])
    (15.0, 2.0)
    """
    times_s = sorted(written_at_s)
    gaps_s = [after - before for before, after in pairwise(times_s)]
    wanted_s = QUIET_GAPS * median(gaps_s) if gaps_s else 0.0
    return min(max(wanted_s, LEAST_QUIET_S), MOST_QUIET_S)


def choose_sample(state_bytes: int, sample_above_bytes: int | None) -> int:
    """One key in how many is compared, so that about `sample_above_bytes` are.

    >>> choose_sample(1000, None), choose_sample(1000, 1000), choose_sample(1001, 1000)
    (1, 1, 2)
    """
    if sample_above_bytes is None or state_bytes <= sample_above_bytes:
        return 1
    return -(-state_bytes // max(sample_above_bytes, 1))


Family = tuple[int, str, str]
"""A family of keys of the state: operator, store, column family."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """All rows of a family as a multiset: equal states have equal ones.

    Attributes:
        rows: how many there are.
        total: sum of 64-bit hashes of the keys and values that are compared.
        parity: exclusive or of other such hashes.
        misplaced: rows that are not in the partition that Spark finds for their key.
    """

    rows: int
    total: int
    parity: int
    misplaced: int


Fingerprints = Mapping[Family, Fingerprint]


def check_placement(before: Fingerprints) -> None:
    """Checks that the query keeps each key where Spark would look for it after a repartition.

    An aggregation without keys does not: all its state is in partition 0, whatever the number is.

    Raises:
        RepartitionError: it does not.

    >>> check_placement({(0, "default", "default"): Fingerprint(5, 1, 1, 0)})
    """
    for (operator, store, _), family in before.items():
        if family.misplaced:
            message = (
                f"operator {operator}, store {store}, has {family.misplaced:,} of {family.rows:,} "
                "rows in other partitions than their keys say, as an aggregation without keys has: "
                "with another number, the query would not find them. Begin a new checkpoint"
            )
            raise RepartitionError(message)


def find_difference(before: Fingerprints, after: Fingerprints) -> str:
    """What differs between two states, as a sentence without a full stop; empty if nothing does.

    >>> family = (0, "default", "default")
    >>> find_difference({family: Fingerprint(5, 1, 1, 0)}, {family: Fingerprint(4, 1, 1, 0)})
    'operator 0, store default, column family default: 5 rows before and 4 after'
    >>> find_difference({family: Fingerprint(5, 1, 1, 0)}, {family: Fingerprint(5, 1, 1, 0)})
    ''
    """
    nothing = Fingerprint(0, 0, 0, 0)
    for family in sorted({*before, *after}):
        old, new = before.get(family, nothing), after.get(family, nothing)
        where = f"operator {family[0]}, store {family[1]}, column family {family[2]}"
        if old.rows != new.rows:
            return f"{where}: {old.rows:,} rows before and {new.rows:,} after"
        if (old.total, old.parity) != (new.total, new.parity):
            return f"{where}: keys or values differ"
        if new.misplaced:
            return f"{where}: {new.misplaced:,} rows are in wrong partitions"
    return ""
