"""What the Prometheus operator defines, from its Go module."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import yaml
from kube import Manifest

API_VERSION = "monitoring.coreos.com/v1"

_MODULE = "github.com/prometheus-operator/prometheus-operator@v0.79.2"


def read_definitions(*resources: str) -> list[Manifest]:
    """The CustomResourceDefinitions of these resources, such as `podmonitors`."""
    command = ["go", "mod", "download", "-json", _MODULE]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout
    folder = Path(json.loads(said)["Dir"], "example", "prometheus-operator-crd")
    paths = [folder / f"monitoring.coreos.com_{resource}.yaml" for resource in resources]
    return [yaml.safe_load(path.read_text("utf-8")) for path in paths]
