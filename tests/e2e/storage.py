"""Shared storage for checkpoints and sinks: a folder of this machine that pods mount as a claim."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kube import UNPRIVILEGED_POD, Kube

CLAIM = "checkpoints"
MOUNT = Path("/checkpoints")


@dataclass(frozen=True)
class Storage:
    """A namespace's claim.

    Attributes:
        namespace: where the claim is.
        folder: its content, seen from this machine.
    """

    namespace: str
    folder: Path

    def here(self, path_in_pod: str) -> Path:
        """Where a path below the mount is on this machine."""
        return self.folder / Path(path_in_pod).relative_to(MOUNT)


def create_storage(kube: Kube, namespace: str, shared_folder: Path) -> Storage:
    """A claim that the driver and all executors can mount at once, and write to."""
    folder = shared_folder / namespace
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    user = UNPRIVILEGED_POD["runAsUser"]
    if os.geteuid() == 0:
        os.chown(folder, user, user)
    else:
        # Without root it cannot be given away: pods then write as anybody.
        folder.chmod(0o777)
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
        },
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
        },
    )
    return Storage(namespace, folder)


def delete_storage(kube: Kube, storage: Storage) -> None:
    """The volume and its content; the claim goes with its namespace."""
    kube.delete("v1", "PersistentVolume", storage.namespace)
    shutil.rmtree(storage.folder, ignore_errors=True)
