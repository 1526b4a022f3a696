"""The driver's control over the keys of one operator: which are hot, and where they must go."""

from __future__ import annotations

import atexit
import heapq
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import Accumulator, SparkContext

from balancedstream.core.keys.epochs import Epoch, Export, Wish
from balancedstream.core.keys.hotkeys import parse_hot_keys
from balancedstream.errors import InvalidInputError, PlanTooLargeError
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.keyed.storage import Home, Operator
from balancedstream.workers.reports import KeyReport, ReportParam

if TYPE_CHECKING:
    # Not more, because the loop imports this module where there may be neither numpy nor pyarrow.
    from balancedstream.keyed.encoding import KeyEncoding

MAX_KEYS = 20_000
"""The epoch is then about 1 MB, which each task reads; a plan in Kubernetes has fewer keys."""

KEPT_BATCHES = 10
"""Number of batches whose measurements are kept; without a controller, nothing reads them."""

HOTTEST_OF_TASK = 10
"""A key below the first ten of a task has less than a tenth of the task's time, so it alone cannot
make its partition hot."""


class KeyControl:
    """Moves keys of one operator, and reports which keys are hot.

    Attributes:
        operator: whose keys they are.
        encoding: of its keys.
        folder: of its mailbox.
        reports: accumulator for the task reports.
    """

    def __init__(self, context: SparkContext, operator: Operator, encoding: KeyEncoding) -> None:
        self.operator = operator
        self.encoding = encoding
        self._run_id = ""
        self._checkpoint = ""
        self.folder = Path(tempfile.mkdtemp(prefix="balancedstream-"))
        self._mailbox = Mailbox(self.folder)
        self._mailbox.write_access(operator.access)
        self._lock = threading.Lock()
        self._exporting_batch = -1
        self._hot: dict[int, dict[tuple[str, int], float]] = {}
        self._handoffs: dict[int, tuple[int, float]] = {}
        self._attempts: dict[tuple[str, int, int], set[int]] = {}
        self.reports: Accumulator[tuple[KeyReport, ...]] = context.accumulator(
            (), ReportParam(self._take)
        )
        # PySpark keeps every accumulator, and with it this object, as long as the process runs.
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def want(self, wish: Wish) -> None:
        """Moves keys to their places, from the next batch on or from the batch in the wish.

        Args:
            wish: with routes from `find_routes`, which refuses immovable keys, or from an epoch,
                which may contain immovable keys in their current places.

        Raises:
            InvalidInputError: this operator has no such key; nothing changes.
            PlanTooLargeError: there are too many keys for every task of every batch to read.
        """
        if len(wish.routes) > MAX_KEYS:
            message = (
                f"routes: has {len(wish.routes)} keys, at most {MAX_KEYS} fit; nothing changed: "
                "give only the hottest keys a route"
            )
            raise PlanTooLargeError(message)
        # A person may spell a key in another way than tasks do.
        routes = {self.encoding.spell(key): route for key, route in wish.routes.items()}
        if len(routes) < len(wish.routes):
            message = "routes: a key appears twice, in two spellings; nothing changed"
            raise InvalidInputError(message)
        self._mailbox.write_wish(replace(wish, routes=routes))

    def find_routes(self, partitions_of: Mapping[str, int], partitions: int) -> dict[str, int]:
        """The routes that bring keys to state partitions.

        Raises:
            InvalidInputError: this operator has no such key, or the key is immovable.
        """
        for key in partitions_of:
            self.encoding.check_movable(key)
        return {
            key: self.encoding.find_route(key, partition, partitions)
            for key, partition in partitions_of.items()
        }

    def take_hot_keys(self, batch: int, count: int) -> list[tuple[str, int, float]]:
        """The keys that took the most time in a batch; call it once a batch.

        Returns:
            Key, state partition and a lower bound on its seconds, highest first.
        """
        with self._lock:
            found = self._hot.pop(batch, {})
        entries = [(key, partition, busy_s) for (key, partition), busy_s in found.items()]
        return heapq.nlargest(count, entries, key=lambda entry: (entry[2], entry[0]))

    def take_handoffs(self, batch: int) -> tuple[int, float]:
        """The number of keys that arrived or left in a batch, and the seconds that this took."""
        with self._lock:
            return self._handoffs.pop(batch, (0, 0.0))

    def read_epoch(self, batch: int) -> Epoch:
        """The epoch of a batch.

        Raises:
            CheckpointError: the batch was planned without this operator.
        """
        return Home(self._checkpoint, self.operator).read_epoch_of(batch)

    def _take(self, report: KeyReport) -> None:
        """Adds the report of a successful task; called while Spark waits."""
        with self._lock:
            place = report["run"], report["batch"], report["partition"]
            # First of all: what fails below must not let another attempt pass for the only one.
            attempts = self._attempts.setdefault(place, set())
            attempts.add(report["attempt"])
            try:
                if report["run"] != self._run_id:
                    self._begin(report)
                self._take_export(report, is_first=len(attempts) == 1)
            except OSError:
                # An export that is lost costs a move. One that counts wrongly would cost state.
                self._mailbox.discard_exports()
                raise
            _controls[report["run"], self.operator.name] = self
            self._forget_before(report["batch"] - KEPT_BATCHES)
            self._add_measurements(report)

    def _add_measurements(self, report: KeyReport) -> None:
        batch, partition = report["batch"], report["partition"]
        hot = self._hot.setdefault(batch, {})
        for entry in parse_hot_keys(report["keys"]).top(HOTTEST_OF_TASK):
            place = entry.key.decode(), partition
            hot[place] = hot.get(place, 0.0) + entry.least
        keys, spent_s = self._handoffs.get(batch, (0, 0.0))
        self._handoffs[batch] = keys + report["handoffs"], spent_s + report["handoff_s"]

    def _take_export(self, report: KeyReport, *, is_first: bool) -> None:
        """If two attempts report one partition, neither counts: it is unknown which one stays."""
        batch, partition = report["batch"], report["partition"]
        if batch < self._exporting_batch or ("file" not in report and is_first):
            return
        if batch > self._exporting_batch:
            self._mailbox.write_exports(())
            self._exporting_batch = batch
        if is_first:
            self._mailbox.add_export(Export(batch, partition, report["file"], report["pieces"]))
        else:
            self._mailbox.withdraw_export(partition)

    def _forget_before(self, batch: int) -> None:
        """Drops measurements of old batches, which may never be read."""
        for known in (self._hot, self._handoffs):
            for older in [b for b in known if b < batch]:
                del known[older]
        for place in [place for place in self._attempts if place[1] < batch]:
            del self._attempts[place]

    def _begin(self, report: KeyReport) -> None:
        """A query started, or started again: earlier exports do not belong to its state."""
        self._checkpoint = report["checkpoint"]
        self._exporting_batch = -1
        self._hot.clear()
        self._handoffs.clear()
        for place in [place for place in self._attempts if place[0] != report["run"]]:
            del self._attempts[place]
        self._mailbox.write_exports(())
        self._mailbox.write_checkpoint(self._checkpoint)
        # Last, so that the next report tries again what failed above.
        self._run_id = report["run"]


_controls: dict[tuple[str, str], KeyControl] = {}


def find_controls(run_id: str) -> list[KeyControl]:
    """The balanced operators of a run of a query that ran a batch.

    Args:
        run_id: Spark's id of the run. Two queries may have one name.
    """
    return [control for (of_run, _), control in _controls.items() if of_run == run_id]


def forget_controls(run_id: str) -> None:
    """Forgets a run that ended."""
    for place in [place for place in _controls if place[0] == run_id]:
        del _controls[place]
