"""The driver's hand on the keys of one operator: what is known of them, and where they shall be."""

from __future__ import annotations

import shutil
import tempfile
import threading
import uuid
import weakref
from collections.abc import Mapping
from pathlib import Path

from pyspark import Accumulator, SparkContext

from balancedstream.core.epochs import Export, Wish
from balancedstream.core.hotkeys import HotKeySketch, parse_hot_keys
from balancedstream.core.plan import MAX_ROUTES
from balancedstream.errors import PlanTooLargeError
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.keyed.processors import EPSILON
from balancedstream.keyed.reports import Report, ReportParam, take_reports


class KeyControl:
    """Moves keys of one operator, and says which ones are hot.

    Args:
        context: the application.
        name: of the operator within its query.
        encoding: of its keys.

    Attributes:
        name: of the operator within its query.
        encoding: of its keys.
        folder: of its mailbox.
        reports: what its tasks add their reports to.
        run_id: of the query that it runs in; empty before the first batch.
    """

    def __init__(self, context: SparkContext, name: str, encoding: KeyEncoding) -> None:
        self.name = name
        self.encoding = encoding
        self.run_id = ""
        self.folder = Path(tempfile.mkdtemp(prefix="balancedstream-"))
        self._mailbox = Mailbox(self.folder)
        self._lock = threading.Lock()
        self._exports: tuple[Export, ...] = ()
        self._sketches: dict[int, HotKeySketch] = {}
        control = uuid.uuid4().hex
        self.reports: Accumulator[tuple[Report, ...]] = context.accumulator(
            (), ReportParam(control)
        )
        take_reports(control, self._take)
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def want(self, wish: Wish) -> None:
        """Has keys brought where they shall be, from the next batch on or from the wish's own.

        Raises:
            InvalidInputError: a key that is none of this operator; nothing changes.
            PlanTooLargeError: more keys than a plan may have.
        """
        if len(wish.routes) > MAX_ROUTES:
            message = (
                f"routes: has {len(wish.routes)} keys, at most {MAX_ROUTES} fit; nothing changed: "
                "give only the hottest keys a route"
            )
            raise PlanTooLargeError(message)
        for key in wish.routes:
            self.encoding.read(key)
        self._mailbox.write_wish(wish)

    def find_routes(self, partitions_of: Mapping[str, int], partitions: int) -> dict[str, int]:
        """The routes that bring keys to state partitions.

        Args:
            partitions_of: key to the partition where it shall be.
            partitions: how many there are.

        Raises:
            InvalidInputError: a key that is none of this operator.
        """
        return {
            key: self.encoding.find_route(key, partition, partitions)
            for key, partition in partitions_of.items()
        }

    def take_hot_keys(self, batch: int) -> HotKeySketch:
        """Which keys took how many seconds in a batch; what is older is forgotten."""
        with self._lock:
            found = self._sketches.pop(batch, HotKeySketch(EPSILON))
            for older in [b for b in self._sketches if b < batch]:
                del self._sketches[older]
            return found

    def _take(self, report: Report) -> None:
        """Takes in what a task that counts said; called while Spark waits."""
        with self._lock:
            if report["run"] != self.run_id:
                self.run_id = report["run"]
                self._exports = ()
                self._sketches.clear()
                self._mailbox.write_exports(())
                self._mailbox.write_checkpoint(report["checkpoint"])
            batch = report["batch"]
            sketch = parse_hot_keys(report["keys"])
            known = self._sketches.get(batch)
            self._sketches[batch] = known.merge(sketch) if known else sketch
            if "file" in report:
                export = Export(batch, report["partition"], report["file"], report["pieces"])
                kept = (e for e in self._exports if e.batch == batch)
                self._exports = (*kept, export)
                self._mailbox.write_exports(self._exports)
