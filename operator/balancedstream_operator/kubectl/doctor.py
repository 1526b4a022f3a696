"""Looks at an installation and its streams, through the API server only.

What a person may not see, or what only a pod can know, is said to be unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from balancedstream.core.wire.objects import application_selector, executor_selector
from balancedstream_operator.api.resource import GROUP, PLURAL, Manifest
from balancedstream_operator.api.target import TargetRef, driver_selector
from balancedstream_operator.driver.state import describe_target
from balancedstream_operator.errors import ClusterError, RefusedError
from balancedstream_operator.kubectl.checks import (
    OperatorFound,
    check_claim,
    check_definition,
    check_lease,
    check_metrics,
    check_operators,
    check_spark,
    check_spec,
    check_target,
    read_operator,
    read_target,
)
from balancedstream_operator.kubectl.connection import Connection
from balancedstream_operator.kubectl.findings import Finding, Level
from balancedstream_operator.kubectl.rights import ASKING, FOLLOWING, OPERATOR, READING, Right
from balancedstream_operator.kubectl.services import COUNT_TARGETS, check_answer, find_service
from balancedstream_operator.observe.endpoints import hide_userinfo

OPERATOR_LABELS = "app.kubernetes.io/component=operator"


class Doctor:
    """Collects findings.

    Attributes:
        findings: so far, in the order in which they were looked for.
    """

    def __init__(self, connection: Connection, now_s: float) -> None:
        self._connection = connection
        self._now_s = now_s
        self.findings: list[Finding] = []

    def examine(self, namespace: str, streams: Sequence[Manifest]) -> list[Finding]:
        """Everything that can be known.

        An empty `namespace` means all.
        """
        with self._looking_at("definition"):
            definition = self._connection.get(
                "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", f"{PLURAL}.{GROUP}"
            )
            self.findings.append(check_definition(definition))
        self._examine_rights(namespace)
        namespaces = sorted({s["metadata"]["namespace"] for s in streams} | {namespace} - {""})
        self._examine_operators(namespaces, is_new=not streams)
        for stream in streams:
            self._examine_stream(stream)
        if not streams:
            self._add(
                "unseen",
                "streams: there is none here; whether Prometheus scrapes drivers, whether storage "
                "can be written, and Spark's version, show with the first one",
            )
        return self.findings

    def _add(self, level: Level, sentence: str) -> None:
        self.findings.append(Finding(level, sentence))

    @contextmanager
    def _looking_at(self, what: str) -> Iterator[None]:
        """Adds a finding if the person may not see it."""
        try:
            yield
        except RefusedError as error:
            self._add("unseen", f"{what}: you may not see it ({error}); ask who may")

    def _examine_rights(self, namespace: str) -> None:
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        for rights, commands in (
            (READING, "status and explain"),
            (ASKING, "approve, pause and resume"),
        ):
            missing = self._find_missing(rights, namespace)
            if missing:
                self._add("problem", f"rights: you may not {missing} {where}: {commands} need it")
            else:
                self._add("ok", f"rights: you may use {commands} {where}")

    def _find_missing(self, rights: Iterable[Right], namespace: str, account: str = "") -> str:
        return ", ".join(
            str(right) for right in rights if not self._connection.may(right, namespace, account)
        )

    def _examine_operators(self, namespaces: Sequence[str], *, is_new: bool) -> None:
        operators: list[OperatorFound] = []
        with self._looking_at("operator"):
            deployments = self._connection.find("apps/v1", "Deployment", "", OPERATOR_LABELS)
            operators = [found for found in map(read_operator, deployments) if found]
            self.findings += check_operators(operators, namespaces)
        for operator in operators:
            self._examine_operator(operator, namespaces)
            # Later, streams say what the operator itself found.
            if is_new:
                self._examine_prometheus(operator)

    def _examine_operator(self, operator: OperatorFound, namespaces: Sequence[str]) -> None:
        if operator.lease:
            own = operator.name.partition("/")[0]
            with self._looking_at("lease"):
                lease = self._connection.get("coordination.k8s.io/v1", "Lease", own, operator.lease)
                self.findings.append(check_lease(operator, lease, self._now_s))
        if not operator.prometheus:
            self._add(
                "problem",
                f"prometheus: {operator.name} has none of its own, so every stream must name one: "
                "set the chart's prometheus.url",
            )
        for namespace in filter(operator.watches, namespaces):
            self._examine_operators_rights(operator.account, namespace)
        for namespace in operator.watched:
            if namespace not in namespaces:
                self._examine_left_out(operator, namespace)

    def _examine_prometheus(self, operator: OperatorFound) -> None:
        if not operator.prometheus:
            return
        service = find_service(operator.prometheus, operator.name.partition("/")[0])
        url = hide_userinfo(operator.prometheus)
        if service is None:
            self._add(
                "unseen",
                f"prometheus: {url} is no Service of this cluster; whether the operator reaches it "
                "shows with the first stream",
            )
            return
        try:
            status, answer = self._connection.ask(service, COUNT_TARGETS)
        except ClusterError as error:
            self._add(
                "unseen", f"prometheus: {url} does not answer through the API server: {error}"
            )
        else:
            self.findings.append(check_answer(url, service, status, answer))

    def _examine_operators_rights(self, account: str, namespace: str) -> None:
        where = f"in namespace {namespace}"
        with self._looking_at(f"rights of the operator {where}"):
            missing = self._find_missing(OPERATOR, namespace, account)
            if missing:
                why = f"{account} may not {missing} {where}"
                self._add("problem", f"rights: {why}: set the chart's rbac.create, or grant it")
            else:
                self._add("ok", f"rights: the operator may do what it needs {where}")

    def _examine_left_out(self, operator: OperatorFound, namespace: str) -> None:
        """Whether the operator can see the streams of a namespace that it should watch."""
        missing = ""
        with self._looking_at(f"rights of the operator in namespace {namespace}"):
            missing = self._find_missing(FOLLOWING, namespace, operator.account)
        if missing:
            self._add(
                "problem",
                f"operator: {operator.name} leaves out namespace {namespace}, of which it should "
                f"watch the streams: it may not {missing} there. If the namespace was deleted, "
                "take it out of the chart's watch.namespaces; if it was made anew, upgrade the "
                "release, which makes its Role again. No restart is needed",
            )

    def _examine_stream(self, stream: Manifest) -> None:
        metadata = stream["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        before = len(self.findings)
        self.findings.append(check_spec(stream))
        target = read_target(stream)
        if target is None:
            self._examine_storage(namespace, stream["spec"].get("checkpoints") or {})
            selector = executor_selector(name)
        else:
            selector = self._examine_target(namespace, target)
        self.findings.append(check_metrics(stream, name))
        with self._looking_at("spark"):
            pods = self._connection.find("v1", "Pod", namespace, selector) if selector else []
            self.findings.append(check_spark(name, pods, ours=target is None))
        for n in range(before, len(self.findings)):
            found = self.findings[n]
            self.findings[n] = Finding(found.level, f"{namespace}/{name}: {found.sentence}")

    def _examine_storage(self, namespace: str, storage: Mapping[str, Any]) -> None:
        claim = storage.get("claim")
        if not claim:
            self._add(
                "unseen",
                f"storage: whether pods can write to {storage.get('uri')} cannot be known from "
                "here; the driver's log says it",
            )
            return
        with self._looking_at("storage"):
            found = self._connection.get("v1", "PersistentVolumeClaim", namespace, claim)
            self.findings.append(check_claim(claim, found))

    def _examine_target(self, namespace: str, target: TargetRef) -> str:
        """Looks for the driver; returns the label selector of its executors, if there is one."""
        application = ""
        with self._looking_at("driver"):
            pods = self._connection.find("v1", "Pod", namespace, driver_selector(target))
            self.findings.append(check_target(target, pods, self._now_s))
            application = describe_target(target, pods, self._now_s).application
        return application_selector(application) if application else ""
