"""What happens to the processes, the network and the disks below Kubernetes, on its only node.

The node's processes are seen from this machine, as those of `tests/cluster` and of kind are.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kube import Manifest
from storage import give_to_pods
from waiting import wait_until

MIB = 1024**2


def find_processes(name: str | None, pod: Manifest | None = None) -> list[int]:
    """The processes of that name, of one pod or of the whole machine.

    Args:
        name: as the kernel has it, with at most 15 characters; None for any.
        pod: whose; None for any.
    """
    # With systemd's driver a cgroup's name has underscores.
    uid = pod["metadata"]["uid"].replace("-", "_") if pod else ""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if name not in (None, (process / "comm").read_text().strip()):
                continue
            if uid in (process / "cgroup").read_text().replace("-", "_"):
                found.append(int(process.name))
    return found


def kill_processes(name: str, pod: Manifest | None = None) -> None:
    """SIGKILL, as when memory runs out.

    Raises:
        AssertionError: there is none.
    """
    found = find_processes(name, pod)
    assert found, f"there is no process {name} to kill"
    _send(signal.SIGKILL, found)


@contextmanager
def freezing(pod: Manifest) -> Iterator[None]:
    """No process of a pod gets any time for as long, as on a node that hangs."""
    frozen = find_processes(None, pod)
    _send(signal.SIGSTOP, frozen)
    try:
        yield
    finally:
        _send(signal.SIGCONT, frozen)


def _send(what: signal.Signals, processes: Sequence[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, what)


@contextmanager
def cutting_network(pod: Manifest, addresses: Sequence[str]) -> Iterator[None]:
    """No packet passes between a pod and these addresses for as long; nobody is told."""
    (network, *_) = find_processes("pause", pod)
    enter = ["nsenter", f"--net=/proc/{network}/ns/net", "iptables", "--wait"]
    rules = [
        [chain, side, address, "--jump", "DROP"]
        for address in addresses
        for chain, side in (("INPUT", "--source"), ("OUTPUT", "--destination"))
    ]
    for rule in rules:
        _run(*enter, "--append", *rule)
    try:
        yield
    finally:
        # The pod may be gone, and its network with it.
        for rule in rules:
            subprocess.run([*enter, "--delete", *rule], check=False, stderr=subprocess.DEVNULL)


class Volume:
    """A file system of its own in a folder, which can be full, and read-only.

    Args:
        folder: whose content is hidden until `close`; pods that start later see this one.
        size_bytes: of the file system.
    """

    def __init__(self, folder: Path, size_bytes: int = 512 * MIB) -> None:
        self._folder = folder
        self._image = folder.with_name(f"{folder.name}.image")
        with self._image.open("wb") as image:
            image.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self._mount("loop", str(self._image))
        give_to_pods(folder)

    def close(self) -> None:
        """Pods that have it keep it until they end."""
        _run("umount", "--lazy", str(self._folder))
        self._image.unlink()

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Not a byte is free for as long."""
        filler = self._folder / "filler"
        try:
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(MIB))
            yield
        finally:
            filler.unlink()

    @contextmanager
    def protecting(self) -> Iterator[None]:
        """Nothing can be written for as long."""
        # Refused while a file is open for writing.
        wait_until(
            "a moment without a writer", lambda: self._try_remount("ro"), timeout_s=60,
            interval_s=0.01,
        )  # fmt: skip
        try:
            yield
        finally:
            self._mount("remount,rw")

    def _try_remount(self, option: str) -> bool:
        command = ["mount", "-o", f"remount,{option}", str(self._folder)]
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0

    def _mount(self, options: str, *source: str) -> None:
        _run("mount", "-o", options, *source, str(self._folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
