"""Reads what a stream's objects say, without the operator's code, and compares it with its spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = Any


def find_differences(
    spec: Mapping[str, Json], name: str, stateful_set: Mapping[str, Json], properties: str
) -> Iterator[str]:
    """What does not run as it is declared, by fields.

    Args:
        spec: of a stream that runs its own application, with the schema's defaults filled in.
        name: of the stream.
        stateful_set: of its driver.
        properties: its `spark-defaults.conf`.
    """
    driver, conf = stateful_set["spec"], read_properties(properties)
    checkpoints, application = spec["checkpoints"], spec["application"]
    folder = f"/checkpoints/{checkpoints.get('path', name)}"
    said: dict[str, tuple[Json, Json]] = {
        "suspend": (0 if spec["suspend"] else 1, driver["replicas"]),
        "sparkConf": (spec["sparkConf"], {key: conf.get(key) for key in spec["sparkConf"]}),
        "checkpoints": (
            checkpoints.get("uri", folder),
            conf.get("spark.sql.streaming.checkpointLocation"),
        ),
    }
    if not spec["driver"].get("podTemplate"):
        (container,) = driver["template"]["spec"]["containers"]
        script = application.get("file", "/etc/balancedstream-script/script.py")
        command = [script, *application["arguments"]]
        said["image"] = spec["image"], container["image"]
        said["application"] = command, container["args"][-len(command) :]
    for field, (declared, found) in said.items():
        if declared != found:
            yield f"{field}: {declared!r} is declared, and {found!r} runs"


def read_properties(text: str) -> dict[str, str]:
    """What `java.util.Properties.load` makes of a text without comments and continued lines."""
    escapes = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}

    def unescape(part: str) -> str:
        return re.sub(r"\\(.)", lambda m: escapes.get(m[1], m[1]), part, flags=re.DOTALL)

    # `splitlines` knows more ends of lines than Java does.
    lines = [line for line in re.split(r"[\r\n]", text) if line.strip(" \t\f")]
    entry = re.compile(r"[ \t\f]*((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
    found = [entry.fullmatch(line) for line in lines]
    return {unescape(match[1]): unescape(match[2]) for match in found if match}
