"""Finds out whether a driver of another operator needs a Role to follow plans."""

from __future__ import annotations

import logging

from balancedstream_operator.api.resource import Stream, driver_name, is_owned_by
from balancedstream_operator.children.manifests import plan_rights
from balancedstream_operator.errors import RefusedError
from balancedstream_operator.kube.clocks import has_passed
from balancedstream_operator.kube.cluster import Cluster

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 300.0
"""The operator asks for an account's rights when the account changes, and at this interval."""


class DriverRights:
    """Knows whether the driver of one stream needs a Role."""

    def __init__(self, stream: Stream, cluster: Cluster) -> None:
        self._stream = stream
        self._cluster = cluster
        self._account = ""
        self._needs = False
        self._looked_at_s = 0.0

    def needs_role(self, account: str, now_s: float) -> bool:
        """Whether an account needs the stream's Role; an existing Role stays needed.

        `account` is empty without a pod.
        """
        if account != self._account or has_passed(LOOK_AGAIN_S, self._looked_at_s, now_s):
            self._needs = bool(account) and self._look(account)
            self._account, self._looked_at_s = account, now_s
        return self._needs

    def _look(self, account: str) -> bool:
        namespace, name = self._stream.namespace, driver_name(self._stream)
        found = self._cluster.get("rbac.authorization.k8s.io/v1", "Role", namespace, name)
        # A Role of another owner with that name does not count.
        if found and is_owned_by(found["metadata"], self._stream.uid):
            return True
        try:
            return not all(
                self._cluster.may(namespace, account, verb, config_map)
                for config_map, verbs in plan_rights(self._stream).items()
                for verb in verbs
            )
        except RefusedError as error:
            log.warning("%s: the driver gets a Role, needed or not: %s", self._stream, error)
            return True
