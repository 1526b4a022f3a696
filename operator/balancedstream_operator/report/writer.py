"""Writes a stream's status to the cluster, if it is new."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.status import Status, drop_words, shorten_conditions, write_status
from balancedstream_operator.errors import RefusedError
from balancedstream_operator.kube.clocks import has_passed
from balancedstream_operator.kube.cluster import Cluster

log = logging.getLogger(__name__)

WORDS_S = 60.0
"""Pause between two writes if only texts change, such as the number of the last batch."""

COMPLETE_S = 300.0
"""Pause between two writes of a whole status, because the cluster may have lost it."""


class StatusWriter:
    """Writes the status of one stream."""

    def __init__(self, stream: Stream, cluster: Cluster) -> None:
        self._stream = stream
        self._cluster = cluster
        # The status in the cluster; None if unknown.
        self._written: Status | None = None
        self._written_s = 0.0
        self._complete_s = 0.0

    def write(self, status: Status, now_s: float) -> None:
        """Writes the changes; after a failure the next write contains them, too."""
        if has_passed(COMPLETE_S, self._complete_s, now_s):
            self._written = None
        written = self._written
        rests = not has_passed(WORDS_S, self._written_s, now_s)
        if written is not None and rests and drop_words(written) == drop_words(status):
            return
        changes = write_status(status)
        if written is not None:
            known = write_status(written)
            changes = {name: value for name, value in changes.items() if known[name] != value}
        if changes:
            self._put(changes, status)
            self._written_s = now_s
        if written is None:
            self._complete_s = now_s
        self._written = status

    def _put(self, changes: dict[str, Any], status: Status) -> None:
        try:
            self._cluster.write_status(self._stream, changes)
        except RefusedError as error:
            # An older definition has room for fewer conditions. Other refusals have other causes.
            if "conditions" not in changes or "conditions" not in str(error):
                raise
            log.warning("%s: upgrade the definition, too: %s", self._stream, error)
            short = write_status(replace(status, conditions=shorten_conditions(status.conditions)))
            changes["conditions"] = short["conditions"]
            self._cluster.write_status(self._stream, changes)
