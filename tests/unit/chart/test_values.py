"""The chart's schema of values and its defaults know the same settings."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from charts import CHART, Manifest

from balancedstream_operator.main import main

VALUES: Manifest = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))

WITHOUT_DEFAULT = {"podSecurityContext", "securityContext", "resources"}
"""Of every chart since the first one; where they are missing, somebody took them away."""


def test_the_defaults_of_the_templates_are_those_of_the_values() -> None:
    text = (CHART / "templates" / "_defaults.tpl").read_text("utf-8")
    found = re.search(r'define "balancedstream.defaults" -}}\n(.*?){{- end }}', text, re.DOTALL)
    assert found
    expected = {name: value for name, value in VALUES.items() if name not in WITHOUT_DEFAULT}
    assert yaml.safe_load(found[1]) == expected


def test_an_option_that_holds_once_is_set_by_a_value_or_by_an_argument(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where a value sets it, the chart refuses it among the further arguments."""
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    entries = re.split(r"\n  (?=--)", text.split("options:")[1])
    options = {entry.split()[0]: " ".join(entry.split()) for entry in entries[1:]}
    # Those may be there twice, or say the same again.
    single = {o for o, said in options.items() if re.match(r"--\S+ [A-Z]", said)}
    single -= {option for option in single if "repeatable" in options[option]}
    agreement = (CHART / "templates" / "_agreement.tpl").read_text("utf-8")
    deployment = (CHART / "templates" / "deployment.yaml").read_text("utf-8")
    assert len(options) >= 10
    for option in options:
        assert option in deployment
    for option in single | {"--namespace", "--all-namespaces"}:
        assert f'"{option}"' in agreement, option


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

    compare(VALUES, schema, "")
