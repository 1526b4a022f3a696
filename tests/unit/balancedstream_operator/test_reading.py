"""What others wrote is bounded in depth and size before anything recursive sees it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.errors import InvalidInputError
from balancedstream_operator.reading import (
    MAX_BYTES,
    MAX_DEPTH,
    bound_stream,
    cut,
    measure_bytes,
    prune,
    read_json,
    refuse_unread,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=30,
)


def nest(depth: int, kind: str = "object") -> str:
    """JSON of so many levels."""
    begin, end = {"object": ('{"a":', "}"), "list": ("[", "]")}[kind]
    return begin * depth + "1" + end * depth


def depth_of(value: Any) -> int:
    level, depth = [value], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [v for p in level for v in (p.values() if isinstance(p, dict) else p)]
    return depth


def make_stream(**parts: Any) -> dict[str, Any]:
    metadata = {"name": "clicks", "namespace": "shop", "uid": "1", "generation": 3}
    return {
        "metadata": metadata,
        "spec": {"image": "clicks:1", "checkpoints": {"uri": "s3a://lake/clicks"}},
        **parts,
    }


@given(JSON, st.integers(1, 6))
def test_cutting_the_text_and_pruning_the_value_are_the_same(value: Any, depth: int) -> None:
    pruned = copy.deepcopy(value)
    is_deep = prune(pruned, depth)
    assert json.loads(cut(json.dumps(value), depth)) == pruned
    assert is_deep == (depth_of(value) > depth)
    assert depth_of(pruned) <= depth
    assert is_deep or pruned == value


@pytest.mark.parametrize("kind", ["object", "list"])
@pytest.mark.parametrize("depth", [10, 990, 9_000, 200_000])
def test_nothing_is_nested_too_deep_to_be_read(kind: str, depth: int) -> None:
    found = read_json(f'{{"deep": {nest(depth, kind)}, "after": "]}}"}}'.encode())
    assert found["after"] == "]}"
    prune(found, MAX_DEPTH)
    assert depth_of(found) == min(depth + 1, MAX_DEPTH)


@pytest.mark.parametrize("text", [b"", b"<html>", b"{", b"\xff\xfe", b"[1,]"])
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


def test_a_stream_as_usual_is_not_touched_but_for_what_nobody_reads() -> None:
    stream = make_stream()
    given = copy.deepcopy(stream)
    given["metadata"]["managedFields"] = [{"fieldsV1": read_json(nest(600).encode())}]
    assert bound_stream(given) == stream
    refuse_unread(stream)


@pytest.mark.parametrize("depth", [MAX_DEPTH, 300, 990])
def test_a_stream_that_is_nested_deep_names_the_field_and_keeps_its_checkpoint(depth: int) -> None:
    stream = make_stream()
    stream["spec"]["driver"] = {"podTemplate": read_json(nest(depth).encode())}
    found = bound_stream(stream)
    assert depth_of(found) <= MAX_DEPTH
    assert found["spec"]["checkpoints"] == {"uri": "s3a://lake/clicks"}
    with pytest.raises(InvalidInputError, match=r"spec\.driver: it is nested deeper"):
        refuse_unread(found)


def test_a_stream_that_is_too_large_keeps_who_it_is_and_its_checkpoint_only() -> None:
    stream = make_stream(status={"text": "x" * MAX_BYTES})
    stream["metadata"]["annotations"] = {
        "balancedstream.io/paused": "yes",
        "other": "x" * 200_000,
    }
    stream["spec"]["driver"] = {"podTemplate": {"spec": {"hostname": "x" * 2 * MAX_BYTES}}}
    found = bound_stream(stream)
    assert measure_bytes(found) < 2_000
    assert found["metadata"]["uid"] == "1"
    assert found["metadata"]["annotations"] == {"balancedstream.io/paused": "yes"}
    assert found["spec"]["checkpoints"] == {"uri": "s3a://lake/clicks"}
    with pytest.raises(InvalidInputError, match=r"most of them in spec\.driver"):
        refuse_unread(found)


def test_a_stream_of_many_fields_that_are_not_known_is_small_too() -> None:
    stream = make_stream()
    stream["spec"] |= {f"field{n}": "x" * 1000 for n in range(2000)}
    assert measure_bytes(bound_stream(stream)) < MAX_BYTES
