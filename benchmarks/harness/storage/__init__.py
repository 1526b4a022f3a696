"""Storage that is as slow as an object store far away."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pyspark

SOURCE = Path(__file__).with_name("SlowFileSystem.java")
SCHEME = "slow"
OPEN_MS = 20
"""What an open takes, unless something else is said; an executor reads 50 MB/s."""


def build_slow_storage(folder: Path, open_ms: int = OPEN_MS) -> dict[str, str]:
    """Compiles the file system into a jar in `folder`; the settings of a session that uses it.

    Paths under `slow:` are then those of this machine. It needs a JDK.
    """
    classes, jar = folder / "slow-storage", folder / "slow-storage.jar"
    spark = Path(pyspark.__file__).parent / "jars" / "*"
    options = ["--release", "17", "-cp", str(spark), "-d", str(classes)]
    subprocess.run(["javac", *options, str(SOURCE)], check=True)  # noqa: S607 - of the PATH
    with zipfile.ZipFile(jar, "w") as archive:
        for path in classes.rglob("*.class"):
            archive.write(path, path.relative_to(classes))
    return {
        "spark.driver.extraClassPath": str(jar),
        "spark.executor.extraClassPath": str(jar),
        f"spark.hadoop.fs.{SCHEME}.impl": "io.balancedstream.benchmarks.SlowFileSystem",
        f"spark.hadoop.fs.{SCHEME}.open-ms": str(open_ms),
    }
