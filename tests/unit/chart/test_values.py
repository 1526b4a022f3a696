"""The chart's schema of values and its defaults know the same settings."""

from __future__ import annotations

import json

import yaml
from charts import CHART, Manifest


def test_the_schema_knows_every_value_and_leaves_nothing_open() -> None:
    """Each object of ours closes its list of properties, and each default is among them."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))

    def resolve(part: Manifest) -> Manifest:
        if "$ref" in part:
            return dict(schema["definitions"][part["$ref"].rsplit("/", 1)[1]])
        return part

    def compare(values: Manifest, part: Manifest, where: str) -> None:
        assert part.get("additionalProperties") is False, where
        assert not values.keys() - part["properties"].keys(), where
        for name, value in values.items():
            inner = resolve(part["properties"][name])
            if isinstance(value, dict) and "properties" in inner:
                compare(value, inner, f"{where}.{name}")

    compare(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), schema, "")
