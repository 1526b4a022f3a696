"""A Kafka broker's process on this machine, from Maven Central's jars."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jars import fetch_jars
from patience import PATIENCE_S

BROKER = Path(__file__).parents[1] / "e2e" / "kafka" / "pom.xml"
PARTITIONS = 3


@contextmanager
def run_broker_process(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A broker that makes topics as they are written to; gives its address and its process.

    Args:
        folder: of its files; exists.
    """
    port, controller = find_port(), find_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"HERE://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "HERE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "HERE",
        "log.dirs": str(folder / "data"),
        "num.partitions": str(PARTITIONS),
        "offsets.topic.replication.factor": "1",
        # The default of 9 s fences a broker that two busy cores let wait.
        "broker.session.timeout.ms": "90000",
    }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{fetch_jars(BROKER)}/*"]
    identity = "MkU3OEVBNTcwNTJENDM2Qk"
    format_storage = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties)]
    subprocess.run([*java, *format_storage], check=True, capture_output=True)
    with (folder / "broker.log").open("w") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
    try:
        await_port(port, process)
        yield f"127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def find_port() -> int:
    """One that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, "the broker ended"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    message = f"no broker within {PATIENCE_S:.0f} s"
    raise AssertionError(message)
