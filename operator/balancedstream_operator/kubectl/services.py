"""Which Service of the cluster a URL names, and what the Prometheus behind it answers: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from balancedstream_operator.kubectl.findings import Finding, Level

COUNT_TARGETS = "count(up == 1)"
"""A query whose answer is the number of targets that answer Prometheus."""

_LATER = "whether the operator reaches it shows with the first stream"

_NO_PODS = "no endpoints available"
"""How the API server says that no pod of a Service is ready."""

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Service:
    """A port of a Service, and the path of an API behind it.

    Attributes:
        namespace: of the Service.
        name: of the Service.
        scheme: http or https.
        port: its number.
        path: before that of a request, without a slash at the end.
        certain: whether the URL can name nothing else.
    """

    namespace: str
    name: str
    scheme: str
    port: int
    path: str
    certain: bool

    def __str__(self) -> str:
        return f"Service {self.name} in namespace {self.namespace}"


def find_service(url: str, namespace: str) -> Service | None:
    """The Service that a URL names; None if it names none.

    `namespace` is that of the pod that asks it.

    >>> found = find_service("http://prometheus.monitoring.svc:9090/prom/", "shop")
    >>> str(found), found.port, found.path, found.certain
    ('Service prometheus in namespace monitoring', 9090, '/prom', True)
    >>> find_service("https://prometheus", "shop").port
    443
    >>> find_service("https://metrics.shop.example", "shop")
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    name, *rest = (parts.hostname or "").split(".")
    is_name = re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name) and name != "localhost"
    if not is_name or not port or (rest[1:] and rest[1] != "svc"):
        return None
    return Service(
        namespace=rest[0] if rest else namespace,
        name=name,
        scheme=parts.scheme,
        port=port,
        path=parts.path.rstrip("/"),
        certain=rest[1:] in ([], ["svc"], ["svc", "cluster", "local"]) and len(rest) != 1,
    )


def check_answer(url: str, service: Service, status: int, answer: object) -> Finding:
    """Whether the operator's own Prometheus answers and scrapes, as the API server reaches it.

    `status` of HTTP and `answer` are those to `COUNT_TARGETS`.
    """
    if isinstance(answer, Mapping) and answer.get("kind") == "Status":
        return _check_refusal(url, service, status, str(answer.get("message", "")))
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        login = "wants a login; whether the operator's holds shows with the first stream"
        return Finding("unseen", f"prometheus: {url} {login}")
    count = _read_count(answer) if status == HTTPStatus.OK else None
    if count is None:
        return Finding(
            "problem",
            f"prometheus: {url} does not answer as Prometheus does (HTTP {status}): set the "
            "chart's prometheus.url to the address of its HTTP API",
        )
    if not count:
        return Finding(
            "problem",
            f"prometheus: {url} answers, and scrapes nothing: have it scrape pods with "
            "prometheus.io annotations, or set the chart's monitoring.podMonitor.enabled",
        )
    return Finding("ok", f"prometheus: {url} answers, and scrapes {count} targets; {_LATER}")


def _read_count(answer: Any) -> int | None:
    """The number that a query answers, 0 for an empty answer; None if it is no answer of one."""
    try:
        result = answer["data"]["result"]
        return int(float(result[0]["value"][1])) if result else 0
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _check_refusal(url: str, service: Service, status: int, message: str) -> Finding:
    if status == HTTPStatus.FORBIDDEN:
        may = "you may not ask it through the API server (get services/proxy)"
        return Finding("unseen", f"prometheus: {url}: {may}; {_LATER}")
    if status == HTTPStatus.NOT_FOUND and not service.certain:
        return Finding("unseen", f"prometheus: {url} is no Service of this cluster; {_LATER}")
    if status == HTTPStatus.NOT_FOUND:
        return Finding(
            "problem",
            f"prometheus: {url} names {service}, which does not exist: set the chart's "
            "prometheus.url",
        )
    # Policies may keep out the API server alone; that no pod is ready holds for all.
    level: Level = "problem" if message.startswith(_NO_PODS) else "unseen"
    return Finding(
        level,
        f"prometheus: {url} does not answer the API server: {message}. See the pods of {service}, "
        "and its ports",
    )
