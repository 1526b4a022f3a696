"""What others wrote is bounded in depth and size before anything recursive sees it."""

from __future__ import annotations

import copy
import json
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.errors import InvalidInputError
from balancedstream_operator.kube import reading
from balancedstream_operator.kube.reading import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    bound_stream,
    count_values,
    cut,
    measure_bytes,
    prune,
    read_json,
    read_stream,
    refuse_unread,
)
from balancedstream_operator.process.following import PAGE

VALUES = Path(__file__).parents[4] / "charts/balancedstream/values.yaml"

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


@given(JSON)
def test_values_are_counted_at_any_depth(value: Any) -> None:
    def count(part: Any) -> int:
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return 1 + sum(map(count, parts))

    assert count_values(value) == count(value)


def test_a_stream_of_many_small_values_is_too_large_by_their_number() -> None:
    stream = make_stream()
    stream["spec"]["driver"] = {"podTemplate": {"x": [[]] * 2 * MAX_VALUES}}
    stream["spec"]["image"] = "x" * 200_000
    assert measure_bytes(stream) < MAX_BYTES
    found = bound_stream(stream)
    assert count_values(found) < 100
    assert found["spec"]["checkpoints"] == {"uri": "s3a://lake/clicks"}
    with pytest.raises(InvalidInputError, match=r"20000 values, most of them in spec\.driver"):
        refuse_unread(found)


def test_a_page_of_the_most_hostile_streams_fits_into_the_memory_that_the_chart_gives() -> None:
    text = b'{"spec": [' + b"[]," * 500_000 + b"[]]}"
    assert len(text) > 1_500_000, "etcd takes no larger ones"
    tracemalloc.start()
    try:
        read_json(text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    limit = yaml.safe_load(VALUES.read_text("utf-8"))["resources"]["limits"]["memory"]
    # The page before may still be in memory.
    assert 2 * PAGE * peak_bytes < int(limit.removesuffix("Mi")) * 2**20 * 2 / 3


def test_large_streams_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = most = 0

    def read(text: bytes) -> Any:
        nonlocal reads, most
        reads += 1
        most = max(most, reads)
        time.sleep(0.02)
        found = read_json(text)
        reads -= 1
        return found

    monkeypatch.setattr(reading, "read_json", read)
    text = json.dumps(make_stream(status={"text": "x" * MAX_BYTES})).encode()
    threads = [threading.Thread(target=read_stream, args=(text,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
