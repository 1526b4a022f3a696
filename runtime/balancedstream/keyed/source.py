"""The control stream: it writes to Spark's offset log which epoch a micro-batch runs with.

It is a streaming data source, united with the data. It runs in another process than the driver's
Python, which sends it files in a folder on the driver's machine (`mailbox`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from balancedstream.core.keys.epochs import Epoch, Wish, advance_epoch
from balancedstream.core.logs import MARK
from balancedstream.errors import CheckpointError, InvalidInputError
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.keyed.storage import BatchContext, Home, Operator, describe_offset
from balancedstream.workers.names import MAILBOX_OPTION

SOURCE = "balancedstream"

MAX_VAIN = 5
"""Number of batches that ask for keys in vain before asking stops."""

MAX_CHANGES = 100
"""Number of changed wishes that a run of `Trigger.AvailableNow` follows, so that it ends."""


class ControlSource(DataSource):
    """Rows that trigger an owner of a key: (route, the key's columns).

    Options: `name` of the operator, `MAILBOX_OPTION`, a folder.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return SOURCE

    def streamReader(self, schema: StructType) -> ControlReader:
        """Makes the reader.

        Spark calls this when the query starts, and again to read rows.

        Raises:
            CheckpointError: the checkpoint is on storage that Python cannot reach, or its last
                batch was not planned with this operator.
        """
        folder = Path(self.options[MAILBOX_OPTION])
        mailbox = Mailbox(folder)
        operator = Operator(self.options["name"], mailbox.read_access())
        location = mailbox.read_location()
        # While another query runs, this may be its location; that query is refused later.
        if location is not None and not mailbox.is_claimed():
            home = Home(location, operator)
            home.check_presence()
            last = home.find_next_batch() - 1
            if last >= 0:
                home.find_epoch_of(last)
        return ControlReader(schema, operator, folder)


class ControlReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans each batch's epoch, by what the driver writes into the mailbox in a folder."""

    def __init__(self, schema: StructType, operator: Operator, folder: Path) -> None:
        self._schema = schema
        self._operator = operator
        self._name = operator.name
        self._mailbox = Mailbox(folder)
        # An earlier run with this mailbox may have had another checkpoint.
        self._before = self._mailbox.read_version()
        self._idle: tuple[Any, ...] | None = None
        self._cleaned = -1
        self._has_handoffs = False
        self._asked: Wish | None = None
        self._vain = 0
        self._followed: Wish | None = None
        self._changes_left: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The epoch in which every key has route 0."""
        return describe_offset(self._name, "", 0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The epoch of the batch that is planned now; Spark calls this before each batch.

        Raises:
            CheckpointError: the checkpoint belongs to a query that was not balanced, or had a
                balanced operator with another name in this place.
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
        # Without data, Spark calls this a hundred times a second.
        if seen == self._idle:
            return start
        home = Home(checkpoint, self._operator)
        batch = home.find_next_batch()
        epoch = home.read_epoch(start["table"])
        new = advance_epoch(epoch, self._relax(wish), exports, batch)
        if batch > self._cleaned:
            # Also without a new epoch, because none follows the last move.
            self._cleaned = batch
            self._has_handoffs = home.remove_outdated(batch)
        if new is epoch:
            first = wish.effective_batch if wish else None
            self._idle = seen if first is None or batch + 1 >= first else None
            return start
        self._vain = 0 if new.arrivals else self._vain + bool(new.asked)
        return describe_offset(self._name, home.write_epoch(new), new.number)

    def commit(self, end: dict[str, Any]) -> None:
        """Looks again with the next batch, if there is something to remove then.

        Spark calls this once a batch, unlike `latestOffset`.
        """
        if self._has_handoffs:
            self._idle = None

    def _check(self, offset: Any) -> None:
        """Checks the name: Spark identifies sources only by their place in the offset log."""
        if not isinstance(offset, dict) or offset.get(MARK) != self._name:
            message = (
                f"the checkpoint has {offset!r:.200} instead of the epoch of the balanced(...) "
                f"named {self._name!r}; no row was processed: start the query as it was when it "
                "wrote this checkpoint, with each balanced(...) under its name and in its place, "
                "or use a new checkpoint"
            )
            raise CheckpointError(message)

    def _claim(self) -> None:
        """Refuses a second query, whose tasks' handoffs would mix with those of the first."""
        if not self._mailbox.claim():
            message = (
                "another running query, or another operator of this one, uses the same "
                "balanced(...); this query did not start, and no row was processed: call "
                "balanced(...) again for each, and give each in one query its own name"
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
        """Asks no longer in vain: keys are then handed over when they have a record.

        Each request causes a batch, even without data.
        """
        if wish != self._asked:
            self._asked, self._vain = wish, 0
        if wish is None or self._vain < MAX_VAIN:
            return wish
        return replace(wish, strategy="lazy")

    def prepareForTriggerAvailableNow(self) -> None:
        """Spark continues as long as there is a new epoch, so there must be a last one."""
        self._followed = self._mailbox.read_wish()
        self._changes_left = MAX_CHANGES

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition for a new epoch, otherwise none.

        Raises:
            CheckpointError: as `latestOffset`, if a query that was not balanced ended in a batch.
            InvalidInputError: as `latestOffset`.
        """
        self._check(end)
        self._claim()
        return [InputPartition(end["table"])] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """One row for each owner that has work, even without data."""
        context = BatchContext(self._operator)
        encoding = KeyEncoding(StructType(self._schema.fields[1:]))
        for key, route in find_owners(context.epoch):
            yield (route, *encoding.read(key))


def find_owners(epoch: Epoch) -> Iterator[tuple[str, int]]:
    """Key and route of each owner that has work in an epoch, even without data.

    >>> from balancedstream.core.keys.epochs import Arrival, Piece
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
