"""Chooses the Prometheus that measures a stream, and tells the stream's series from others."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from balancedstream_operator.api.resource import refuse
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.settings import Settings

ANY_URL = "*"

_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
"""The characters of a URL (RFC 3986)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Prometheus to ask.

    Attributes:
        url: of its HTTP API.
        credentials: by the keys of a Secret; empty for none.
        of_the_operator: whether it is the operator's own, and not one that a stream names.
        sigv4_region: of AWS, to sign requests for as the operator; empty for no signature.
    """

    url: str
    credentials: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    of_the_operator: bool = False
    sigv4_region: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What to measure.

    Attributes:
        stream: `namespace/name`, the value of the label `stream`.
        namespace: of the driver's pod.
        pod: name of the driver's pod.
        ips: addresses of the driver's pod; empty if they are not known.
        labels: that the series must have.
        stale_after_s: age from which the newest scrape is too old; None follows the scrapes.
    """

    stream: str
    namespace: str = ""
    pod: str = ""
    ips: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    stale_after_s: float | None = None

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Whether a series can be the driver's, by the labels that Prometheus itself sets.

        Another cluster behind the same Thanos has streams of the same name, and any pod that is
        scraped can claim to be a driver. A series without one of these labels may be the driver's.

        >>> subject = Subject("shop/clicks", "shop", "clicks-driver-0", ("10.0.0.7",))
        >>> subject.owns({"pod": "clicks-driver-0", "instance": "10.0.0.7:9404"})
        True
        >>> subject.owns({"pod": "clicks-driver-0", "instance": "10.8.0.7:9404"})
        False
        """
        expected = {"namespace": self.namespace, "pod": self.pod}
        if any(labels.get(name, value) != value for name, value in expected.items() if value):
            return False
        ip = _read_ip(labels.get("instance", ""))
        return not (ip and self.ips) or ip in map(_normalize_ip, self.ips)


def choose_endpoint(
    spec: StreamSpec, settings: Settings, credentials: Mapping[str, str]
) -> Endpoint:
    """The Prometheus of a stream; `credentials` are the contents of the Secret that it names.

    Raises:
        MissingMeasurementsError: there is no Prometheus, or the operator may not ask it.
    """
    own = spec.metrics.prometheus_url
    if not (own or settings.prometheus_url):
        message = (
            "no Prometheus is configured: set spec.metrics.prometheusUrl, or the chart's "
            "prometheus.url"
        )
        raise MissingMeasurementsError(message)
    if own is None or _is_own(own, settings):
        # A stream with a Secret of its own asks as itself.
        given = credentials or settings.read_credentials()
        return Endpoint(
            settings.prometheus_url,
            tuple(sorted(given.items())),
            of_the_operator=True,
            sigv4_region="" if credentials else settings.sigv4_region,
        )
    if not any(_is_below(own, allowed) for allowed in settings.allowed_urls):
        message = (
            f"the operator may not ask {hide_userinfo(own)}, the stream's own Prometheus: leave "
            "spec.metrics.prometheusUrl out, or let the chart's prometheus.allowedUrls name it"
        )
        raise MissingMeasurementsError(message)
    return Endpoint(own, tuple(sorted(credentials.items())))


def names_own_prometheus(resource: Mapping[str, Any], settings: Settings) -> bool:
    """Whether a BalancedStream, valid or not, names another Prometheus than the operator's.

    >>> names_own_prometheus({"spec": {"metrics": {"prometheusUrl": "http://b"}}}, Settings("b"))
    True
    """
    metrics = (resource.get("spec") or {}).get("metrics") or {}
    url = metrics.get("prometheusUrl")
    return url is not None and not _is_own(str(url), settings)


def refuse_queries(spec: StreamSpec, settings: Settings) -> None:
    """Refuses a spec with a query if the operator asks no queries of streams.

    Raises:
        InvalidInputError: the spec has a query.
    """
    if spec.executors.min_query and not settings.asks_queries:
        problem = (
            "the operator asks no queries of streams: take it out, or let the chart's "
            "prometheus.streamQueries allow it"
        )
        refuse("spec.executors.minQuery", problem)


def has_query(resource: Mapping[str, Any]) -> bool:
    """Whether a BalancedStream, valid or not, has a query of its own.

    >>> has_query({"spec": {"executors": {"minQuery": "max(load)"}}})
    True
    """
    executors = (resource.get("spec") or {}).get("executors") or {}
    return bool(executors.get("minQuery"))


def _is_own(url: str, settings: Settings) -> bool:
    return url.rstrip("/") == settings.prometheus_url.rstrip("/")


def merge_labels(spec: StreamSpec, settings: Settings) -> tuple[tuple[str, str], ...]:
    """Labels that a stream's series must have: the operator's, overridden by the stream's own."""
    return tuple(sorted({**dict(settings.prometheus_labels), **spec.metrics.labels}.items()))


def hide_userinfo(url: str) -> str:
    """A URL as people may see it: without user, password, query and fragment.

    >>> hide_userinfo("https://me:secret@prometheus:9090/a?token=1")
    'https://prometheus:9090/a'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _is_below(url: str, allowed: str) -> bool:
    """Whether a URL is an allowed one, or below it on the same server."""
    # The HTTP client would read another host from other characters, such as a backslash.
    if not _URL.fullmatch(url):
        return False
    try:
        asked, root = urlsplit(url), urlsplit(allowed)
        same = (asked.scheme, asked.hostname, asked.port) == (root.scheme, root.hostname, root.port)
    except ValueError:
        return False
    if allowed == ANY_URL:
        return True
    path, folder = unquote(asked.path), root.path.rstrip("/")
    return same and ".." not in path and (path + "/").startswith(folder + "/")


# All series of a driver have one instance.
@lru_cache(maxsize=1024)
def _read_ip(instance: str) -> str:
    found = re.fullmatch(r"\[(.*)\](:[0-9]+)?|([^:]*)(:[0-9]+)?", instance)
    return _normalize_ip(found[1] or found[3] if found else instance)


@lru_cache(maxsize=1024)
def _normalize_ip(text: str) -> str:
    """One spelling of an address, as IPv6 has several; empty for other text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
