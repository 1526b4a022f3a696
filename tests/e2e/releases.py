"""An old release beside the present one: its chart, its definition and its images."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import images
from clusters import Node

OLD_COMMIT = "d9e83c7"
"""Before the operator kept what it decides by in the plan, and drivers answered in an object."""

OPERATOR = "localhost/balancedstream-operator:old"
SPARK = "localhost/balancedstream-spark:old"
APP = "localhost/balancedstream-app:old"


@dataclass(frozen=True)
class Release:
    """What users have installed.

    Attributes:
        folder: its source tree.
        operator: its image.
        app: the tests' applications on its Spark.
    """

    folder: Path
    operator: str
    app: str

    @property
    def chart(self) -> Path:
        """Of Helm."""
        return self.folder / "charts" / "balancedstream"

    @property
    def definition(self) -> Path:
        """The custom resource's."""
        return self.folder / "crds" / "balancedstreams.yaml"


@contextmanager
def build_old_release(node: Node) -> Iterator[Release]:
    """Builds its images as they were built then; its sources are there for as long."""
    command = ["git", "-C", str(images.REPOSITORY), "archive", OLD_COMMIT]
    archive = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        for image, stage in ((OPERATOR, "operator"), (SPARK, "spark")):
            node.build(image.removeprefix("localhost/"), folder, ["--target", stage])
        images.build_app_image(node, APP, SPARK)
        yield Release(folder, OPERATOR, APP)
