"""Writes the reference pages that are made from the code; a test keeps them in step.

python docs/generate.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from balancedstream.core.policy import knobs
from balancedstream.core.sizing import PARTITIONS_PER_EXECUTOR
from balancedstream.engine.settings import SETTINGS, SHUFFLE_PARTITIONS
from balancedstream_operator.crd import build

REFERENCE = Path(__file__).parent / "reference"
MADE = "<!-- Made by docs/generate.py; change the code instead. -->\n"


def render_policy() -> str:
    """The page of all knobs."""
    lines = [
        "# Policy\n",
        MADE,
        "`balancedstream policy` prints these as a file; `run --policy FILE` reads one. What a",
        "file leaves out keeps its default.\n",
        "| knob | default | allowed | unit | what it does |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{k.path}` | {k.default} | {k.allowed} | {k.unit} | {k.sentence} |" for k in knobs()
    ]
    return "\n".join(lines) + "\n"


def render_settings() -> str:
    """The page of Spark settings."""
    lines = [
        "# Spark settings of a balanced job\n",
        MADE,
        "`balancedstream run` sets these where the script, `spark-defaults.conf` or",
        "`PYSPARK_SUBMIT_ARGS` do not; your own settings win, with a warning where they defeat",
        "balancing. `spark.dynamicAllocation.enabled=true` is refused: two parties would set the",
        "number of executors. What the storage settings bring is measured in",
        "[performance.md](../performance.md).\n",
        "| setting | value | why |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{s.key}` | `{s.value}` | {s.reason} |" for s in SETTINGS]
    lines.append(
        f"| `{SHUFFLE_PARTITIONS}` | {PARTITIONS_PER_EXECUTOR} x the most executors of `--local` | "
        "fewer state partitions cannot be spread evenly; fixed in a checkpoint once it exists |"
    )
    return "\n".join(lines) + "\n"


def render_resource() -> str:
    """The page of the BalancedStream resource."""
    schema = build()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lines = [
        "# The BalancedStream resource\n",
        MADE,
        "`balancedstream.io/v1alpha1`, short name `bst`. The API server checks every field by",
        "these rules, so a manifest that is wrong is refused when it is applied, with the field's",
        "name.\n",
    ]
    for part, title in (("spec", "Spec"), ("status", "Status")):
        lines += [
            f"## {title}\n",
            "| field | type | default | allowed | what it is |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += list(_describe_fields(schema["properties"][part], part))
        lines.append("")
    lines += ["## Rules\n", "Beyond single fields, the API server sees to it that:\n"]
    lines += [f"- {message}" for message in dict.fromkeys(_collect_rules(schema))]
    return "\n".join(lines) + "\n"


def _describe_fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        default = "required" if name in required else _describe_default(field)
        yield (
            f"| `{here}` | {field.get('type', '')} | {default} | {_describe_allowed(field)} | "
            f"{field.get('description', '')} |"
        )
        yield from _describe_fields(field, here)
        if isinstance(field.get("items"), dict):
            yield from _describe_fields(field["items"], f"{here}[]")


def _describe_default(field: dict[str, Any]) -> str:
    default = field.get("default")
    return "" if default in (None, "", [], {}) or isinstance(default, dict) else f"`{default}`"


def _describe_allowed(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(field["enum"])
    if "minimum" in field:
        return f"{field['minimum']:.15g} to {field['maximum']:.15g}"
    if "pattern" in field:
        return "`" + field["pattern"].replace("|", "\\|") + "`"
    return ""


def _collect_rules(schema: dict[str, Any]) -> Iterator[str]:
    # Those of single numbers stand in the table already.
    if schema["type"] == "object":
        yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    for field in schema.get("properties", {}).values():
        yield from _collect_rules(field)


def write_pages() -> None:
    """Writes all of them."""
    (REFERENCE / "balancedstream.md").write_text(render_resource(), "utf-8")
    (REFERENCE / "policy.md").write_text(render_policy(), "utf-8")
    (REFERENCE / "settings.md").write_text(render_settings(), "utf-8")


if __name__ == "__main__":
    write_pages()
