"""Servers are reached by IPv4 and by IPv6, whichever of the two a cluster has."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from balancedstream.errors import PortInUseError
from balancedstream.listening import choose_address, write_in_url
from balancedstream.metrics.exporter import Exporter
from balancedstream_operator.process.metrics import OperatorMetrics

HAS_IPV6 = choose_address("::") == "::"
ipv6 = pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")


def ask(host: str, port: int, path: str) -> int:
    with closing(http.client.HTTPConnection(host, port, timeout=30)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    started = Exporter()
    yield started
    started.close()


@ipv6
@pytest.mark.parametrize("wanted", ["0.0.0.0", "::", "[::]", ""])  # noqa: S104
def test_all_addresses_are_those_of_both_families(exporter: Exporter, wanted: str) -> None:
    exporter.start(0, wanted)
    assert exporter.port is not None
    for host in ("127.0.0.1", "::1"):
        assert ask(host, exporter.port, "/metrics") == 200
        assert ask(host, exporter.port, "/healthz") in {200, 503}


@ipv6
@pytest.mark.parametrize("wanted", ["::1", "[::1]"])
def test_one_address_is_that_one_alone(exporter: Exporter, wanted: str) -> None:
    exporter.start(0, wanted)
    assert exporter.port is not None
    assert ask("::1", exporter.port, "/metrics") == 200
    with pytest.raises(ConnectionRefusedError):
        ask("127.0.0.1", exporter.port, "/metrics")


def test_where_there_is_no_ipv6_all_addresses_are_those_of_ipv4(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = socket.socket

    class OfIpv4(plain):  # type: ignore[misc, valid-type]
        def __init__(self, family: int = -1, *rest: int, **named: object) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, *rest, **named)

    monkeypatch.setattr(socket, "socket", OfIpv4)
    exporter.start(0, "::")
    assert exporter.port is not None
    assert ask("127.0.0.1", exporter.port, "/metrics") == 200


def test_a_port_that_is_taken_is_said_to_be_on_all_addresses_too(exporter: Exporter) -> None:
    exporter.start(0, "::")
    assert exporter.port is not None
    with pytest.raises(PortInUseError):
        Exporter().start(exporter.port, "0.0.0.0")  # noqa: S104


@ipv6
def test_the_operators_metrics_are_reached_by_both_families() -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    OperatorMetrics().start(port)
    for host in ("127.0.0.1", "::1"):
        assert ask(host, port, "/metrics") == 200


def test_an_address_in_a_url_has_brackets_where_it_has_colons() -> None:
    assert f"http://{write_in_url('::1')}:80" == "http://[::1]:80"
