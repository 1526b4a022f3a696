"""Shared storage for checkpoints and sinks: a folder of this machine that pods mount as a claim."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kube import UNPRIVILEGED_POD, Kube
from waiting import wait_until

CLAIM = "checkpoints"


@dataclass(frozen=True)
class Storage:
    """A namespace's claim.

    Attributes:
        namespace: where the claim is.
        folder: its content, seen from this machine.
    """

    namespace: str
    folder: Path


def create_storage(kube: Kube, namespace: str, shared_folder: Path) -> Storage:
    """A claim that the driver and all executors can mount at once, and write to.

    One that is there already is kept, with its content.
    """
    folder = shared_folder / namespace
    folder.mkdir(parents=True, exist_ok=True)
    give_to_pods(folder)
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": namespace},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "claimRef": {"namespace": namespace, "name": CLAIM},
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        }
    )
    # A claim that comes before its volume is known, or a pod before its claim is bound, is looked
    # at again only a quarter of a minute later.
    _wait_for_phase(kube, "PersistentVolume", namespace, "Available", "Bound")
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": namespace,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    _wait_for_phase(kube, "PersistentVolumeClaim", CLAIM, "Bound", namespace=namespace)
    return Storage(namespace, folder)


def give_to_pods(folder: Path) -> None:
    """Lets pods write to a folder."""
    user = UNPRIVILEGED_POD["runAsUser"]
    if os.geteuid() == 0:
        os.chown(folder, user, user)
    else:
        # Without root it cannot be given away: pods then write as anybody.
        folder.chmod(0o777)


def _wait_for_phase(kube: Kube, kind: str, name: str, *phases: str, namespace: str = "") -> None:
    def look() -> bool:
        found = kube.find("v1", kind, name, namespace=namespace)
        return found is not None and found.get("status", {}).get("phase") in phases

    wait_until(f"{kind} {name} to be {phases[-1]}", look, timeout_s=60, interval_s=0.2)


def delete_storage(kube: Kube, storage: Storage) -> None:
    """The volume and its content; the claim goes with its namespace."""
    kube.delete("v1", "PersistentVolume", storage.namespace)
    shutil.rmtree(storage.folder, ignore_errors=True)
