"""Writes a stream's status to the cluster, and only where it says something new."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.status import changed_fields, choose_conditions, without_words
from balancedstream_operator.errors import RefusedError
from balancedstream_operator.kube.clocks import has_passed
from balancedstream_operator.kube.cluster import Cluster

log = logging.getLogger(__name__)

WORDS_S = 60.0
"""If only texts changed, such as the number of the last batch, one status a minute is written."""

COMPLETE_S = 300.0
"""All of a status is written this often, because the one in the cluster may have been lost."""


class StatusWriter:
    """Writes the status of one stream.

    Args:
        stream: whose.
        cluster: where.
    """

    def __init__(self, stream: Stream, cluster: Cluster) -> None:
        self._stream = stream
        self._cluster = cluster
        # What the cluster is known to hold.
        self._written: Mapping[str, Any] = {}
        self._written_s = 0.0
        self._complete_s = 0.0

    def write(self, status: Mapping[str, Any], now_s: float) -> None:
        """Writes what is new; what could not be written is written with the next status.

        Args:
            status: complete.
            now_s: seconds since the Unix epoch.

        Raises:
            ClusterError: the API server does not take it.
        """
        if has_passed(COMPLETE_S, self._complete_s, now_s):
            self._written = {}
        complete = not self._written
        changes = changed_fields(self._written, status)
        if not has_passed(WORDS_S, self._written_s, now_s) and not changed_fields(
            without_words(self._written), without_words(status)
        ):
            return
        if changes:
            self._put(changes)
            self._written_s = now_s
            if complete:
                self._complete_s = now_s
        self._written = status

    def _put(self, changes: dict[str, Any]) -> None:
        try:
            self._cluster.write_status(self._stream, changes)
        except RefusedError as error:
            short = choose_conditions(changes.get("conditions") or [])
            # Of an older definition: too many of them. Any other refusal has another cause.
            if not short or "conditions" not in str(error):
                raise
            log.warning("%s: upgrade the definition, too: %s", self._stream, error)
            self._cluster.write_status(self._stream, changes | {"conditions": short})
