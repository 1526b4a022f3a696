"""One dataclass makes a schema for the API server and reads manifests by the same limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import pytest
import yaml
from manifests import make_spec

from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.schema import (
    Foreign,
    Knobs,
    Number,
    Part,
    Schema,
    Switch,
    Text,
    Texts,
    Words,
    camel,
    describe,
    read,
    rule,
)
from balancedstream_operator.api.spec import StreamSpec


@dataclass(frozen=True)
class Corner:
    at: Annotated[int, Number("Where it is.", 0, 9)]
    shade: Annotated[float, Number("How dark it is.", 0.25, 1.0)] = 0.5


@dataclass(frozen=True)
class Shape:
    RULES: ClassVar[tuple[Schema, ...]] = (rule("self.size < 9", "size must be below 9"),)

    name: Annotated[str, Text("Its name.", 8, "[a-z]+")]
    corner: Annotated[Corner, Part("Its first corner.")]
    last_corner: Annotated[Corner | None, Part("Its last corner.")] = None
    size: Annotated[int, Number("How large it is.", 1, 10)] = 2
    kind: Annotated[str, Words("What it is.", ("round", "flat"))] = "flat"
    open: Annotated[bool, Switch("Whether it is open.")] = False
    tags: Annotated[tuple[str, ...], Texts("Tags.", max_items=3, max_length=4)] = ()
    notes: Annotated[Mapping[str, str], Texts("Notes.", max_items=3)] = field(default_factory=dict)
    extra: Annotated[Mapping[str, Any], Foreign("Whatever.")] = field(default_factory=dict)
    window: Annotated[Mapping[str, Any], Knobs("Batches.", "window")] = field(default_factory=dict)


SMALLEST: dict[str, Any] = {"name": "box", "corner": {"at": 1}}


def properties(kind: type = Shape) -> Schema:
    found: Schema = describe(kind)["properties"]
    return found


def test_fields_without_a_default_are_required() -> None:
    assert describe(Shape)["required"] == ["name", "corner"]
    assert describe(Corner)["required"] == ["at"]


def test_limits_patterns_and_words_reach_the_schema() -> None:
    assert properties()["name"] == {
        "description": "Its name.",
        "type": "string",
        "maxLength": 8,
        "pattern": "^[a-z]+$",
    }
    assert properties()["size"]["minimum"] == 1
    assert properties()["size"]["maximum"] == 10
    assert properties()["kind"]["enum"] == ["round", "flat"]
    assert properties()["tags"]["maxItems"] == 3
    assert properties()["tags"]["items"] == {"type": "string", "maxLength": 4}
    assert properties()["notes"]["maxProperties"] == 3
    assert properties()["extra"]["x-kubernetes-preserve-unknown-fields"] is True
    assert describe(Shape)["x-kubernetes-validations"] == [
        {"rule": "self.size < 9", "message": "size must be below 9"}
    ]


def test_a_fractional_minimum_is_a_rule_because_integers_would_slip_below_it() -> None:
    shade = properties(Corner)["shade"]
    assert shade["minimum"] == 0.25
    assert shade["x-kubernetes-validations"] == [
        {"rule": "self >= 0.25", "message": "must be at least 0.25"}
    ]


def test_knobs_bring_their_own_sentences_units_and_defaults() -> None:
    window = properties()["window"]
    assert window["properties"]["batches"]["default"] == 3
    assert window["properties"]["batches"]["description"].endswith("[batches]")
    assert window["default"] == {"batches": 3}


def test_a_removed_knob_keeps_its_field_without_default_and_limits() -> None:
    assert properties()["window"]["properties"]["windowSeconds"] == {
        "description": "Removed, and ignored: scaling.windowSeconds holds for loads, too.",
        "type": "number",
    }


def test_a_manifest_is_read_with_defaults_for_what_it_leaves_out() -> None:
    assert read(Shape, SMALLEST) == Shape("box", Corner(1))
    given = {
        **SMALLEST,
        "lastCorner": {"at": 9, "shade": 1},
        "tags": ["a", "b"],
        "notes": {"k": "v"},
        "extra": {"x": [1]},
        "window": {"batches": 20},
        "open": True,
    }
    assert read(Shape, given) == Shape(
        "box",
        Corner(1),
        last_corner=Corner(9, 1),
        tags=("a", "b"),
        notes={"k": "v"},
        extra={"x": [1]},
        window={"batches": 20},
        open=True,
    )


def test_null_is_left_out() -> None:
    assert read(Shape, {**SMALLEST, "size": None}).size == 2
    with pytest.raises(InvalidInputError, match=r"^spec\.name: missing$"):
        read(Shape, {**SMALLEST, "name": None})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"corner": {}}, "spec.corner.at: missing"),
        ({"corner": {"at": 10}}, "spec.corner.at: must be an integer from 0 to 9, not 10"),
        ({"corner": {"at": 1.0}}, "spec.corner.at: must be an integer from 0 to 9, not 1.0"),
        (
            {"corner": {"at": 1, "shade": 0}},
            "spec.corner.shade: must be a number from 0.25 to 1, not 0",
        ),
        ({"corner": []}, "spec.corner: must be an object, not []"),
        ({"name": "muchtoolong"}, "spec.name: must be text of at most 8 characters"),
        ({"kind": "square"}, "spec.kind: must be one of round, flat, not 'square'"),
        ({"open": 1}, "spec.open: must be true or false, not 1"),
        ({"tags": "a"}, "spec.tags: must be a list, not 'a'"),
        ({"tags": ["a", "bcdef"]}, "spec.tags[1]: must be text of at most 4 characters"),
        ({"notes": {"k": 1}}, "spec.notes.k: must be text"),
        ({"window": {"batches": 0}}, "spec.window.batches: must be an integer from 1 to 1000"),
        ({"window": {"batch": 1}}, "spec.window.batch: unknown field, allowed are batches"),
        ({"colour": "red"}, "spec.colour: unknown field, allowed are name, corner"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        read(Shape, {**SMALLEST, **change})
    assert str(raised.value).startswith(says)


def test_a_class_whose_fields_are_not_annotated_is_a_mistake_of_ours() -> None:
    @dataclass(frozen=True)
    class Bare:
        size: int = 1

    with pytest.raises(TypeError, match=r"Bare\.size is not annotated"):
        describe(Bare)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("budget_s", "budgetSeconds"), ("act_above", "actAbove"), ("uri", "uri")],
)
def test_names_are_in_camel_case_with_their_unit_spelled_out(name: str, expected: str) -> None:
    assert camel(name) == expected


YAML_WORDS = ("off", "Off", "on", "Yes", "no", "true", "False")


@pytest.mark.parametrize("text", YAML_WORDS)
@pytest.mark.parametrize("path", ["scaling.mode", "balancing.mode", "metrics.hotKeys", "image"])
def test_a_word_that_yaml_reads_as_a_boolean_is_said_to_want_quotes(text: str, path: str) -> None:
    section, _, field = path.rpartition(".")
    value = yaml.safe_load(text)
    given = {field: value}
    with pytest.raises(InvalidInputError, match=rf"^spec\.{re.escape(path)}: .*quote it"):
        make_spec(**({section: given} if section else given))


@pytest.mark.parametrize("value", [True, 7, 0.5])
def test_a_setting_that_yaml_reads_as_no_text_is_said_to_want_quotes(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^spec\.sparkConf\.spark\.x: .*quote it"):
        make_spec(sparkConf={"spark.x": value})


def test_each_choice_that_yaml_reads_as_no_text_is_quoted_in_its_description() -> None:
    def find(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for inner in schema.get("properties", {}).values():
            yield inner
            yield from find(inner)

    wanting = 0
    for described in find(describe(StreamSpec)):
        for word in described.get("enum", ()):
            if not isinstance(yaml.safe_load(word), str):
                wanting += 1
                assert f'"{word}"' in described["description"]
    assert wanting == 4
