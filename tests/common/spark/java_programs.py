"""Small Java programs beside classes of the product, with Spark's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

QUICK = "-XX:TieredStopAtLevel=1"
"""What runs for a second gains nothing by better code."""

needs_compiler = pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK")


def run_program(
    text: str,
    sources: Sequence[Path],
    folder: Path,
    *arguments: object,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Compiles a class `Program` in the product's package, and runs it; the lines it prints.

    Args:
        text: of the class.
        sources: of the product's classes that it needs.
        folder: for what is compiled.
        arguments: of the program.
        options: of its JVM.
        environment: of its JVM, beside the usual one.
    """
    program = folder / "Program.java"
    program.write_text(text, "utf-8")
    spark = str(Path(_find_spark_home(), "jars", "*"))
    compiler = ["javac", f"-J{QUICK}", "-nowarn", "-proc:none", "-cp", spark, "-d", str(folder)]
    subprocess.run([*compiler, str(program), *map(str, sources)], check=True, capture_output=True)
    jvm = [
        "java",
        QUICK,
        *options,
        "-cp",
        f"{folder}{os.pathsep}{spark}",
        "io.balancedstream.Program",
    ]
    ended = subprocess.run(
        [*jvm, *map(str, arguments)],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()
