"""An S3 server on this machine: the one of the end-to-end tests, with its objects as files."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.applications import find_free_port

SERVER = Path(__file__).parents[3] / "tests" / "e2e" / "objectstore"
ACCESS_KEY = "tests"
SECRET_KEY = "only-on-this-machine"  # noqa: S105 - it protects nothing
START_TIMEOUT_S = 30.0


@contextmanager
def serve_objects(folder: Path) -> Iterator[str]:
    """Serves the folders in a folder as buckets, as long as this is open; gives the URL.

    It needs Go, the first time.
    """
    server = build_object_server()
    address = f"127.0.0.1:{find_free_port()}"
    account = {"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    command = [str(server), "--quiet", "--port", address, "posix", str(folder)]
    process = subprocess.Popen(
        command, env=os.environ | account, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_port(process, address)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def build_object_server() -> Path:
    """The server's binary, kept between runs under the checksum of what it is made of."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "balancedstream-e2e"
    checksum = hashlib.sha256((SERVER / "go.sum").read_bytes()).hexdigest()[:16]
    server = cache / f"objectstore-{checksum}"
    if not server.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = server.with_suffix(f".{os.getpid()}")
        command = ["go", "build", "-trimpath", "-o", str(unfinished), "tool"]
        environment = os.environ | {"CGO_ENABLED": "0"}
        subprocess.run(command, cwd=SERVER, env=environment, check=True)
        unfinished.rename(server)
    return server


def describe_access(url: str) -> dict[str, str]:
    """Hadoop's settings that reach the server at this URL, or a proxy before it."""
    return {
        "fs.s3a.access.key": ACCESS_KEY,
        "fs.s3a.secret.key": SECRET_KEY,
        "fs.s3a.endpoint": url,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }


def _await_port(process: subprocess.Popen[bytes], address: str) -> None:
    host, _, port = address.partition(":")
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return
