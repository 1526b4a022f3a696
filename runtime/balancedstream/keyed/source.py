"""The control stream: says in Spark's offset log which epoch a micro-batch runs with.

A streaming data source of its own, united with the data. It runs in another process than the
driver's Python, which tells it by files in a folder of the driver's machine (`mailbox`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from balancedstream.core.epochs import Epoch, Wish, advance_epoch
from balancedstream.errors import CheckpointError, InvalidInputError
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.keyed.storage import MARK, BatchContext, Home, describe_offset
from balancedstream.workers.names import MAILBOX_OPTION

SOURCE = "balancedstream"

MAX_VAIN = 5
"""Batches in which keys are asked for their state without any coming."""

MAX_CHANGES = 100
"""A run of `Trigger.AvailableNow` ends, however often somebody changes their mind meanwhile."""


class ControlSource(DataSource):
    """Rows that make an owner look at a key: (route, the key's columns).

    Options: `name` of the operator, `MAILBOX_OPTION`, a folder.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return SOURCE

    def streamReader(self, schema: StructType) -> ControlReader:
        """The reader.

        Spark asks when the query starts, and once more for whoever reads rows.

        Raises:
            CheckpointError: the checkpoint is not on a file system that is mounted, or its last
                batch was not planned with this operator.
        """
        name, folder = self.options["name"], Path(self.options[MAILBOX_OPTION])
        mailbox = Mailbox(folder)
        location = mailbox.read_location()
        # Where a query runs, it may be the location of another one, which is refused below.
        if location is not None and not mailbox.is_claimed():
            home = Home(location, name)
            last = home.find_next_batch() - 1
            if last >= 0:
                home.find_epoch_of(last)
        return ControlReader(schema, name, folder)


class ControlReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans each batch's epoch.

    Args:
        schema: of the rows.
        name: of the operator.
        folder: where the driver writes.
    """

    def __init__(self, schema: StructType, name: str, folder: Path) -> None:
        self._schema = schema
        self._name = name
        self._mailbox = Mailbox(folder)
        # Whoever ran before with this mailbox may have had another checkpoint.
        self._before = self._mailbox.read_version()
        self._idle: tuple[Any, ...] | None = None
        self._cleaned = -1
        self._asked: Wish | None = None
        self._vain = 0
        self._followed: Wish | None = None
        self._changes_left: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The epoch in which every key has route 0."""
        return describe_offset(self._name, "", 0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The epoch of the batch that is planned now; Spark asks before each one.

        Raises:
            CheckpointError: the checkpoint is that of a query that was not balanced, or had a
                balanced operator of another name in this place.
            InvalidInputError: another query runs with the same `balanced(...)`.
        """
        self._check(start)
        self._claim()
        checkpoint = self._mailbox.read_checkpoint()
        if checkpoint is None or self._mailbox.read_version() == self._before:
            return start
        wish = self._read_wish()
        exports = self._mailbox.read_exports()
        seen = start["table"], wish, exports
        # Without data Spark asks a hundred times a second.
        if seen == self._idle:
            return start
        home = Home(checkpoint, self._name)
        batch = home.find_next_batch()
        epoch = home.read_epoch(start["table"])
        new = advance_epoch(epoch, self._relax(wish), exports, batch)
        if batch > self._cleaned:
            # Without a new epoch, too: behind the last move comes none.
            self._cleaned = batch
            home.remove_outdated(batch)
        if new is epoch:
            first = wish.effective_batch if wish else None
            self._idle = seen if first is None or batch + 1 >= first else None
            return start
        self._vain = 0 if new.arrivals else self._vain + bool(new.asked)
        return describe_offset(self._name, home.write_epoch(new), new.number)

    def _check(self, offset: Any) -> None:
        """Spark tells sources apart by their place in the offset log, and counts them only."""
        if not isinstance(offset, dict) or offset.get(MARK) != self._name:
            message = (
                f"the checkpoint has {offset!r:.200} where it should have the epoch of a "
                f"balanced(...) of the name {self._name!r}; no row was processed: start the query "
                "as it was when it wrote this checkpoint, with each balanced(...) under its name "
                "and in its place, or give it a new checkpoint"
            )
            raise CheckpointError(message)

    def _claim(self) -> None:
        """Two queries would each plan by what the tasks of both have handed over."""
        if not self._mailbox.claim():
            message = (
                "another query that runs, or another operator of this one, has the same "
                "balanced(...); this query did not start, and no row was processed: call "
                "balanced(...) anew for each, and within one query give each a name of its own"
            )
            raise InvalidInputError(message)

    def _read_wish(self) -> Wish | None:
        wish = self._mailbox.read_wish()
        if self._changes_left is not None and wish != self._followed:
            if not self._changes_left:
                return self._followed
            self._changes_left -= 1
        self._followed = wish
        return wish

    def _relax(self, wish: Wish | None) -> Wish | None:
        """Who was asked often enough and handed nothing over, does so when a record comes.

        Each asking is a batch, with data or without.
        """
        if wish != self._asked:
            self._asked, self._vain = wish, 0
        if wish is None or self._vain < MAX_VAIN:
            return wish
        return replace(wish, strategy="lazy")

    def prepareForTriggerAvailableNow(self) -> None:
        """Spark goes on as long as there is a new epoch: there must be a last one."""
        self._followed = self._mailbox.read_wish()
        self._changes_left = MAX_CHANGES

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One, for a new epoch.

        Raises:
            CheckpointError: as `latestOffset`, where a query that was not balanced ended within a
                batch.
            InvalidInputError: as `latestOffset`.
        """
        self._check(end)
        self._claim()
        return [InputPartition(end["table"])] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """One row for each owner that has something to do, data or none."""
        context = BatchContext(self._name)
        encoding = KeyEncoding(StructType(self._schema.fields[1:]))
        for key, route in find_owners(context.epoch):
            yield (route, *encoding.read(key))


def find_owners(epoch: Epoch) -> Iterator[tuple[str, int]]:
    """Key and route of those that have something to do in an epoch, data or none.

    >>> from balancedstream.core.epochs import Arrival, Piece
    >>> moved = Epoch(2, 5, {'"de"': 3}, {'"de"': Arrival(0, Piece("a", 0, 9))}, asked=('"fr"',))
    >>> [*find_owners(moved)]
    [('"de"', 0), ('"de"', 3), ('"fr"', 0)]
    """
    for key, arrival in epoch.arrivals.items():
        yield key, arrival.source
        yield key, epoch.route_of(key)
    for key in epoch.asked:
        if key not in epoch.arrivals:
            yield key, epoch.route_of(key)
