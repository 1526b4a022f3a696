"""Addresses to listen on, of both families of the Internet Protocol."""

from __future__ import annotations

import socket

_EVERY = {"", "0.0.0.0", "::", "[::]"}  # noqa: S104 - what people write for it


def choose_address(wanted: str) -> str:
    """The address to listen on for a wanted one, which may have the brackets of a URL.

    Whoever asks for all addresses gets those of IPv4 and IPv6, from one socket: a cluster has
    either family, or both. Where there is no IPv6, that is `0.0.0.0`.

    >>> choose_address("[::1]"), choose_address("127.0.0.1")
    ('::1', '127.0.0.1')
    """
    if wanted in _EVERY:
        return "::" if _takes_both_families() else "0.0.0.0"  # noqa: S104 - as it was asked for
    return wanted[1:-1] if wanted.startswith("[") and wanted.endswith("]") else wanted


def write_in_url(address: str) -> str:
    """An address as it stands in a URL.

    >>> write_in_url("fd00::2"), write_in_url("[fd00::2]"), write_in_url("10.0.0.7")
    ('[fd00::2]', '[fd00::2]', '10.0.0.7')
    """
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def _takes_both_families() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as tried:
            # With net.ipv6.bindv6only, it would take IPv6 alone.
            if tried.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
                return False
            tried.bind(("::", 0))
    except OSError:
        return False
    return True
