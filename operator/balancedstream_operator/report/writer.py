"""Writes a stream's status to the cluster, and only where it says something new."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.status import (
    Status,
    drop_words,
    shorten_conditions,
    write_status,
)
from balancedstream_operator.errors import RefusedError
from balancedstream_operator.kube.clocks import has_passed
from balancedstream_operator.kube.cluster import Cluster

log = logging.getLogger(__name__)

WORDS_S = 60.0
"""If only texts changed, such as the number of the last batch, one status a minute is written."""

COMPLETE_S = 300.0
"""All of a status is written this often, because the one in the cluster may have been lost."""


class StatusWriter:
    """Writes the status of one stream."""

    def __init__(self, stream: Stream, cluster: Cluster) -> None:
        self._stream = stream
        self._cluster = cluster
        # What the cluster is known to hold; None if that is not known.
        self._written: Status | None = None
        self._written_s = 0.0
        self._complete_s = 0.0

    def write(self, status: Status, now_s: float) -> None:
        """Writes what is new; what could not be written is written with the next status."""
        if has_passed(COMPLETE_S, self._complete_s, now_s):
            self._written = None
        changes, written = write_status(status), self._written
        if written is not None:
            if drop_words(written) == drop_words(status) and not has_passed(
                WORDS_S, self._written_s, now_s
            ):
                return
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
            # Of an older definition: too many of them. Any other refusal has another cause.
            if "conditions" not in changes or "conditions" not in str(error):
                raise
            log.warning("%s: upgrade the definition, too: %s", self._stream, error)
            short = write_status(replace(status, conditions=shorten_conditions(status.conditions)))
            changes["conditions"] = short["conditions"]
            self._cluster.write_status(self._stream, changes)
