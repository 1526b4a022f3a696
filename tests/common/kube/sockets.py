"""Where a process of this machine listens, as Linux says."""

from __future__ import annotations

import os
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

LISTENS = "0A"
"""The state of a socket in /proc/net/tcp."""


def find_listening(pid: int) -> set[tuple[IPv4Address | IPv6Address, int]]:
    """The addresses and ports of TCP on which a process listens."""
    process = Path(f"/proc/{pid}")
    open_files = set()
    for file in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            open_files.add(os.readlink(file))
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in (process / "net" / table).read_text().splitlines()[1:]
    ]
    return {
        read_address(local)
        for _, local, _, state, *_, inode in (words[:10] for words in lines)
        if state == LISTENS and f"socket:[{inode}]" in open_files
    }


def read_address(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Reads `0100007F:1F90`: words of 32 bits, each from its lowest byte to its highest."""
    digits, _, port = text.partition(":")
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    address = ip_address(b"".join(words))
    # Java listens by IPv6 on addresses of IPv4.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address, int(port, 16)
