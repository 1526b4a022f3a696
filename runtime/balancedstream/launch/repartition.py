"""The command that changes the number of state partitions of a query that is stopped."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from balancedstream.core.logs import Format
from balancedstream.core.printing import printable
from balancedstream.core.repartition import (
    Checkpoint,
    Fingerprints,
    Step,
    can_undo,
    check_placement,
    check_undo,
    choose_sample,
    choose_step,
    estimate,
    find_difference,
    find_stage,
)
from balancedstream.engine.repartition.files import (
    await_quiet,
    find_checkpoint,
    holding,
    read_checkpoint,
    remove_repartition,
    withdraw_commit,
)
from balancedstream.engine.repartition.states import (
    open_session,
    rewrite_state,
    take_fingerprints,
)
from balancedstream.engine.session.java import check_java
from balancedstream.engine.traits import check_repartition
from balancedstream.errors import RepartitionError
from balancedstream.launch.saying import say
from balancedstream.record.wording import format_duration, plural

Sessions = Callable[[Format], AbstractContextManager[SparkSession]]


@dataclass(frozen=True)
class RepartitionOptions:
    """What `balancedstream repartition` was asked for; its help describes each option.

    Attributes:
        checkpoint: path, or URI that begins with `file:`.
        partitions: the wanted number of state partitions; for `undo`, the number of the repartition
            that is meant, and 0 for the last one, whatever its number.
        sample_above_bytes: of state; None to compare all.
    """

    checkpoint: str
    partitions: int
    dry_run: bool = False
    undo: bool = False
    sample_above_bytes: int | None = None


def repartition(options: RepartitionOptions, sessions: Sessions = open_session) -> None:
    """Changes the number and compares the state before with that after; says so on standard output.

    Args:
        options: what to do.
        sessions: opens the session of Spark that rewrites state of a format.

    Raises:
        RepartitionError: it was refused, was not finished, or was undone; the message says which.
        UnsupportedSparkError: this Spark cannot.
        JavaMissingError: there is no Java for Spark.
    """
    check_repartition()
    path = find_checkpoint(options.checkpoint)
    with holding(path):
        found = read_checkpoint(path)
        if options.undo:
            _undo(path, found, options)
            return
        step = choose_step(found, options.partitions)
        if step == "leave":
            number = plural(found.partitions, "state partition")
            print(f"{printable(str(path))}: it has {number} already. Nothing was changed.")
            return
        for line in describe(path, found, options.partitions, step):
            print(printable(line), flush=True)
        if options.dry_run:
            print("Nothing was changed (--dry-run).")
            return
        check_java()
        if step == "begin":
            await_quiet(path)
        try:
            _repartition(path, found, options, step, sessions)
        except KeyboardInterrupt:
            say(_advise(path, options.partitions))
            raise


def repartition_each(each: Sequence[RepartitionOptions]) -> None:
    """Changes, or undoes, one after the other; the first error ends it, but not what is undone.

    Raises:
        RepartitionError: as `repartition`; of several that cannot be undone, the message has all.
        UnsupportedSparkError: this Spark cannot.
        JavaMissingError: there is no Java for Spark.
    """
    errors = []
    for options in each:
        try:
            repartition(options)
        except RepartitionError as error:
            if not options.undo:
                raise
            errors.append(str(error))
    if errors:
        raise RepartitionError(" ".join(errors))


def describe(path: Path, found: Checkpoint, partitions: int, step: Step) -> Iterator[str]:
    """What will be done to a checkpoint, in lines for a person."""
    before = found.partitions if step == "begin" else found.partitions_before
    yield (
        f"{path}: batch {found.committed}, format {found.format}, {before} state partitions -> "
        f"{partitions}"
    )
    for operator in found.operators:
        yield (
            f"  operator {operator.id}, {operator.name}: {plural(len(operator.stores), 'store')}, "
            f"{operator.state_bytes:,} bytes of files, {plural(operator.versions, 'version')}"
        )
    if step == "verify":
        yield "The repartition is done; the state is compared once more."
    if step == "finish":
        yield "The repartition was begun; it is finished now."
    costs = estimate(found, partitions)
    yield (
        f"It takes about {format_duration(costs.duration_s)} and, until the query removes old "
        f"versions, up to {costs.disk_bytes:,} more bytes on disk."
    )
    if can_undo(found):
        yield "--undo can take it back, until the query commits its next batch."
    else:
        yield (
            "--undo cannot take it back, because the checkpoint has format 1: if you may want "
            "that, copy the checkpoint first. To go back later, repartition to the old number."
        )
    if step == "begin":
        yield (
            "The query must be stopped. One that only waits for rows leaves no trace here, and "
            "would end at its next batch with CONCURRENT_STREAM_LOG_UPDATE."
        )
        yield "If this is interrupted, the same command finishes it, and no query starts before."


def _repartition(
    path: Path, found: Checkpoint, options: RepartitionOptions, step: Step, sessions: Sessions
) -> None:
    assert found.planned is not None  # noqa: S101 - `choose_step` refuses what has no batch
    batch, partitions = found.planned, found.partitions
    if step != "begin":
        batch, partitions = batch - 1, found.partitions_before or 0
    state_bytes = sum(operator.state_bytes for operator in found.operators)
    one_in = choose_sample(state_bytes, options.sample_above_bytes)
    with sessions(found.format) as session:
        try:
            before = take_fingerprints(
                session, path, found.operators, batch=batch, partitions=partitions, one_in=one_in
            )
            check_placement(before)
            if step != "verify":
                rewrite_state(session, path, options.partitions)
            after = take_fingerprints(
                session,
                path,
                found.operators,
                batch=batch + 1,
                partitions=options.partitions,
                one_in=one_in,
            )
        except RepartitionError as error:
            message = f"{str(error).rstrip('.')}. {_advise(path, options.partitions)}"
            raise RepartitionError(message) from error
    _judge(path, before, after)
    rows = sum(family.rows for family in before.values())
    if one_in == 1:
        print(f"Equal before and after: {rows:,} rows of state, every key and value.")
    else:
        print(
            f"Equal before and after: the number of rows, {rows:,}, and the values of a sample, "
            f"one key in {one_in}."
        )
    print(
        f"Batch {batch + 1} has {plural(options.partitions, 'state partition')}. The query takes "
        "the number from its checkpoint when it starts."
    )


def _judge(path: Path, before: Fingerprints, after: Fingerprints) -> None:
    """Keeps queries from a state that differs.

    Raises:
        RepartitionError: it differs.
    """
    difference = find_difference(before, after)
    if not difference:
        return
    found = read_checkpoint(path)
    if can_undo(found):
        remove_repartition(path, found)
        end = "The repartition was undone: the query goes on as before"
    else:
        withdraw_commit(path, found)
        end = (
            "The query does not start on it. Type this command again, or put back a copy of the "
            "checkpoint"
        )
    message = f"the state after the repartition is not that before: {difference}. {end}"
    raise RepartitionError(message)


def _advise(path: Path, partitions: int) -> str:
    """What an interrupted repartition left, and what to type."""
    found = read_checkpoint(path)
    stage = find_stage(found)
    command = f"balancedstream repartition {shlex.quote(str(path))}"
    finish = f"`{command} --partitions {partitions}`"
    undo = f", `{command} --undo` goes back" if can_undo(found) else ""
    if stage == "half-done":
        return (
            "The repartition is half done: nothing is lost, and the query does not start. "
            f"{finish} finishes it{undo}."
        )
    if stage == "done":
        return f"The repartition is done, but not compared: {finish} compares it{undo}."
    return "Nothing was changed."


def _undo(path: Path, found: Checkpoint, options: RepartitionOptions) -> None:
    if not check_undo(found, options.partitions or None):
        print(
            f"{printable(str(path))}: there is nothing to undo: its last batch has "
            f"{plural(found.partitions, 'state partition')}, not {options.partitions}."
        )
        return
    assert found.planned is not None  # noqa: S101 - `check_undo` refuses what has no batch
    line = (
        f"{printable(str(path))}: batch {found.planned}, with "
        f"{plural(found.partitions, 'state partition')}, "
    )
    then = f"the query goes on after batch {found.planned - 1}, with {found.partitions_before}"
    if options.dry_run:
        print(f"{line}would be removed; then {then}.")
        print("Nothing was changed (--dry-run).")
        return
    if find_stage(found) == "done":
        await_quiet(path)
    remove_repartition(path, found)
    print(f"{line}was removed; {then}.")
