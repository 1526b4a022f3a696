"""The CRD is generated, bounded, described, and as wide as the policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from balancedstream.core.policy import knobs
from balancedstream.core.removed import REMOVED
from balancedstream_operator.api.conditions import KINDS
from balancedstream_operator.api.crd import FILES, build, main, render
from balancedstream_operator.api.resource import MAX_DECISIONS, MAX_HOTTEST

ROOT = Path(__file__).parents[4]


def walk(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, inner in schema.get("properties", {}).items():
        found += walk(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += walk(schema[key], f"{path}[]")
    return found


def schema() -> dict[str, Any]:
    version = build()["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_committed_crd_is_the_one_that_the_classes_make(path: Path) -> None:
    assert (ROOT / path).read_text("utf-8") == render(), (
        "run python -m balancedstream_operator.api.crd"
    )


def test_every_string_list_and_map_is_bounded() -> None:
    spec = schema()["properties"]["spec"]
    for path, part in walk(spec):
        if part.get("type") == "string" and "enum" not in part:
            assert "maxLength" in part, path
        if part.get("type") == "array":
            assert "maxItems" in part, path
        if "additionalProperties" in part:
            assert "maxProperties" in part, path


def test_every_field_says_what_it_is() -> None:
    for path, part in walk(schema()["properties"]["spec"]):
        if not path.endswith("[]"):
            assert part.get("description"), path


def test_every_knob_of_the_policy_can_be_set_in_a_manifest() -> None:
    spec = schema()["properties"]["spec"]["properties"]
    shown = sum(
        len(part["properties"])
        for part in (
            spec["balancing"],
            spec["migration"],
            spec["admission"],
            spec["scaling"],
            spec["metrics"]["properties"]["window"],
            spec["schedule"],
        )
    )
    paths = [*(knob.path for knob in knobs()), *(knob.path for knob in REMOVED)]
    # A price is of the whole installation: the chart has it.
    of_streams = [path for path in paths if not path.startswith("cost.")]
    # Executors have the limits and the reserve; only the operator heeds periods of repartitions.
    assert shown + 3 - 1 == len(of_streams)


def test_sentences_name_fields_and_words_as_a_manifest_has_them() -> None:
    for path, part in walk(schema()["properties"]["spec"]):
        said = part.get("description", "")
        assert re.findall(r"\b[a-z]+_[a-z_]+\b", said) == [], path
        for choice in part.get("enum", ()):
            assert choice[0].islower() or f"({choice.lower()})" not in said, path


def test_every_field_of_the_status_but_times_says_what_it_is() -> None:
    for path, part in walk(schema()["properties"]["status"]):
        if not path.endswith("[]") and part.get("format") != "date-time" and "enum" not in part:
            assert part.get("description"), path


def test_the_status_has_room_for_all_that_is_reported() -> None:
    status = schema()["properties"]["status"]["properties"]
    # A newer operator has more conditions than the definition's release knew.
    assert status["conditions"]["maxItems"] == 32 >= len(KINDS)
    assert status["decisions"]["maxItems"] == MAX_DECISIONS
    assert status["hottestPartitions"]["maxItems"] == status["hottestKeys"]["maxItems"]
    assert status["hottestKeys"]["maxItems"] == MAX_HOTTEST


def test_kubectl_shows_and_scales_a_stream() -> None:
    version = build()["spec"]["versions"][0]
    shown = {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}
    assert shown["Imbalance"] == ".status.imbalanceText"
    assert shown["Phase"] == ".status.phase"
    fields = schema()["properties"]["status"]["properties"]
    for path in shown.values():
        if path.startswith(".status."):
            assert path.removeprefix(".status.") in fields
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.executors.fixed",
        "statusReplicasPath": ".status.executors",
        "labelSelectorPath": ".status.selector",
    }


def test_writing_the_files_makes_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main()
    for path in FILES:
        assert (tmp_path / path).read_text("utf-8") == render()
