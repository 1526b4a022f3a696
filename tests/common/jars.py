"""Jars from Maven Central, for what tests run beside Spark."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path


def fetch_jars(pom: Path, properties: Mapping[str, str] | None = None) -> Path:
    """The jars of a pom.xml, kept between runs under the checksum of what names them."""
    options = [f"-D{name}={value}" for name, value in sorted((properties or {}).items())]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "balancedstream-e2e"
    named = pom.read_bytes() + "".join(options).encode()
    jars = cache / hashlib.sha256(named).hexdigest()[:16]
    if jars.exists():
        return jars
    unfinished = jars.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["mvn", "--quiet", "--batch-mode", f"--file={pom}", "dependency:copy-dependencies"]
    arguments = ["-DincludeScope=runtime", f"-DoutputDirectory={unfinished}", *options]
    subprocess.run([*command, *arguments], check=True)
    unfinished.rename(jars)
    return jars
