"""A driver is reached at its pod's address, whichever family of addresses its cluster has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import template

from balancedstream.listening import choose_address

pytestmark = pytest.mark.integration

APP = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("host", spark.conf.get("spark.driver.host"))
print("sum", spark.sparkContext.parallelize(range(100), 4).sum())
"""


@pytest.mark.parametrize(("address", "host"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_executors_reach_a_driver_at_its_address(address: str, host: str, tmp_path: Path) -> None:
    if ":" in address and choose_address("::") != "::":
        pytest.skip("this machine has no IPv6")
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.master local-cluster[1,2,512]\nspark.executor.memory 512m\nspark.ui.enabled false\n"
    )
    (tmp_path / "app.py").write_text(APP)
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "app.py")],
        env=build_environment(address, tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = ended.stdout.splitlines()
    assert [f"host {host}", "sum 4950"] == said[-2:], ended.stderr[-3000:]


def build_environment(address: str, conf_dir: Path) -> dict[str, str]:
    """The variables of a driver's container, as the kubelet makes them."""
    (container,) = template()["spec"]["containers"]
    found = {"POD_IP": address, "POD_NAME": "clicks-driver-0"}
    for entry in container["env"]:
        if "value" in entry:
            value = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], entry["value"])
            found[entry["name"]] = value
    return {
        **os.environ,
        **found,
        "SPARK_CONF_DIR": str(conf_dir),
        "PYSPARK_PYTHON": sys.executable,
    }
