"""An image has the Python packages that its SBOM lists, and no others."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from images import OPERATOR, REPOSITORY, SPARK
from kube import NO_RIGHTS_TO_GAIN, UNPRIVILEGED_POD, Kube
from packaging.utils import canonicalize_name
from sites import Site
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

LIST = """
import json
from importlib.metadata import distributions
print(json.dumps([[found.name, found.version] for found in distributions()]))
"""
NOT_LISTED = {"balancedstream", "pip"}
"""What the SBOM is of, and what applications add their packages with."""


@pytest.mark.usefixtures("project_images")
def test_each_image_has_what_its_sbom_lists(site: Site, kube: Kube) -> None:
    make = shutil.which("make") or "make"
    subprocess.run([make, "sbom"], cwd=REPOSITORY, check=True)
    with site.namespace("contents"):
        for name, image in (("operator", OPERATOR), ("spark-4.3", SPARK)):
            sbom = json.loads((REPOSITORY / f"sbom-{name}.cdx.json").read_text("utf-8"))
            listed = {canonicalize_name(c["name"]): c["version"] for c in sbom["components"]}
            there = list_packages(kube, "contents", image)
            assert {n: v for n, v in there.items() if n not in NOT_LISTED} == listed, name
            assert "balancedstream" in there


def list_packages(kube: Kube, namespace: str, image: str) -> dict[str, str]:
    """The Python packages of an image, as a pod of it sees them: versions by name."""
    name = image.rpartition("/")[2].partition(":")[0]
    container = {
        "name": "list",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", LIST],
        "securityContext": NO_RIGHTS_TO_GAIN,
    }
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "securityContext": UNPRIVILEGED_POD,
                "containers": [container],
            },
        }
    )

    def is_over() -> bool:
        pod = kube.find("v1", "Pod", name, namespace=namespace)
        assert pod is not None
        return pod["status"]["phase"] in {"Succeeded", "Failed"}

    wait_until(f"the packages of {image}", is_over, timeout_s=120)
    packages = json.loads(kube.log(namespace, name))
    return {canonicalize_name(found): version for found, version in packages}
