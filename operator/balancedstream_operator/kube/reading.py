"""Reads JSON that others wrote, within bounds: pure.

Whoever may create objects may make them large, and nest them deeper than Python's recursion goes.
So each is bounded before anything recursive sees it, and what is beyond the bounds is refused by
name where its stream is looked after, and hides no other one.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.resource import GROUP, Manifest

MAX_DEPTH = 64
"""Levels of a BalancedStream. A pod template that Kubernetes itself would take has under 20."""

MAX_BYTES = 512 * 1024
"""Of a BalancedStream as JSON. Kubernetes stores three times as much, in any number of objects."""

MAX_VALUES = 20_000
"""Of a BalancedStream: an empty list has three bytes as JSON, and some sixty in memory."""

MAX_KEPT_BYTES = 64 * 1024
"""Of what is kept of a part of one that is larger."""

PARSED_DEPTH = 4 * MAX_DEPTH
"""What is nested deeper is not even parsed where that would need more than Python's recursion."""

_UNREAD = "unread"
"""Beside `spec` and `status`: why the rest of a BalancedStream was not read."""

_KEPT_METADATA = (
    "name",
    "namespace",
    "uid",
    "generation",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
)

_LARGE = threading.Lock()
"""Held while a large one is read."""

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def read_json(text: bytes) -> Any:
    """What JSON holds, however deep it is nested; far beyond what anybody needs it is cut off.

    Raises:
        ValueError: the text is not JSON.

    >>> read_json(b'{"a": [1]}')
    {'a': [1]}
    """
    decoded = text.decode("utf-8", errors="replace")
    try:
        return json.loads(decoded)
    except RecursionError:
        return json.loads(cut(decoded, PARSED_DEPTH))


def cut(text: str, depth: int) -> str:
    """JSON in which everything that is nested deeper is null; it needs no recursion.

    >>> cut('{"a": [[1], "]"], "b": {}}', 2)
    '{"a": [null, "]"], "b": {}}'
    """
    kept: list[str] = []
    at = level = 0
    for found in _TOKENS.finditer(text):
        token = found[0]
        if token in {"[", "{"}:
            level += 1
            if level == depth + 1:
                kept.append(text[at : found.start()])
        elif token in {"]", "}"}:
            if level == depth + 1:
                kept.append("null")
                at = found.end()
            level -= 1
    kept.append(text[at:])
    return "".join(kept)


def prune(value: Any, depth: int) -> bool:
    """Replaces, in place, what is nested deeper by None; returns whether there was any.

    >>> value = {"a": [[1]], "b": 2}
    >>> prune(value, 2), value
    (True, {'a': [None], 'b': 2})
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth - 1):
        level = [part for whole in level for part in _list_parts(whole)]
        if not level:
            return False
    found = False
    for whole in level:
        for key in [*whole] if isinstance(whole, dict) else range(len(whole)):
            if isinstance(whole[key], dict | list):
                whole[key], found = None, True
    return found


def _list_parts(whole: Any) -> list[Any]:
    parts = whole.values() if isinstance(whole, dict) else whole
    return [part for part in parts if isinstance(part, dict | list)]


def read_stream(text: bytes) -> Manifest:
    """A BalancedStream within bounds, from JSON; large ones are read one after the other.

    Raises:
        ValueError: the text is not JSON.
    """
    with _LARGE if len(text) > MAX_BYTES else nullcontext():
        return bound_stream(read_json(text), len(text))


def bound_stream(resource: Manifest, size_bytes: int | None = None) -> Manifest:
    """A BalancedStream within bounds; beyond them it is shortened, and says so.

    Args:
        resource: of the API server; it is changed.
        size_bytes: of it as JSON, or more than that; None if it is not known.
    """
    metadata = resource["metadata"]
    # As large and as deep as what they tell of, and nobody reads them.
    metadata.pop("managedFields", None)
    spec = resource.get("spec") or {}
    deep = [f"spec.{name}" for name, value in spec.items() if prune(value, MAX_DEPTH - 2)]
    if deep:
        message = (
            f"{deep[0]}: it is nested deeper than {MAX_DEPTH} levels, which no pod template is; "
            "take out what is nested so deep"
        )
        resource = {**resource, _UNREAD: message}
    for name in {*resource} - {"spec"}:
        prune(resource[name], MAX_DEPTH - 1)
    if size_bytes is None or size_bytes > MAX_BYTES:
        size_bytes = measure_bytes(resource)
    if size_bytes > MAX_BYTES:
        return _shorten(resource, f"{MAX_BYTES // 1024} KiB", measure_bytes)
    # Each has two bytes at least.
    if size_bytes > 2 * MAX_VALUES and count_values(resource) > MAX_VALUES:
        return _shorten(resource, f"{MAX_VALUES} values", count_values)
    return resource


def count_values(value: Any) -> int:
    """How many lists, objects and others there are in something; it may be nested deep.

    >>> count_values({"a": [1, {}]})
    4
    """
    count, level = 1, _list_parts([value])
    while level:
        count += sum(map(len, level))
        level = [part for whole in level for part in _list_parts(whole)]
    return count


def measure_bytes(value: Any) -> int:
    """Size of something as JSON; it must not be nested deep.

    >>> measure_bytes([1])
    3
    """
    return len(json.dumps(value).encode())


def _shorten(resource: Manifest, limit: str, measure: Callable[[Any], int]) -> Manifest:
    """Who a stream is, and which checkpoint it has: others must not get that one."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    sizes = {name: measure_bytes(value) for name, value in spec.items()}
    largest = max(spec, key=lambda name: measure(spec[name]), default="")
    message = (
        f"the BalancedStream has more than {limit}, most of them in "
        f"spec.{largest}; put what is large into a ConfigMap"
    )
    kept = {name: metadata[name] for name in _KEPT_METADATA if name in metadata}
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name.startswith(f"{GROUP}/")
    }
    parts = {
        "annotations": annotations,
        "finalizers": metadata.get("finalizers") or [],
    }
    kept |= {name: part for name, part in parts.items() if measure_bytes(part) <= MAX_KEPT_BYTES}
    few = {n: value for n, value in spec.items() if sizes[n] <= MAX_KEPT_BYTES // len(spec)}
    status = resource.get("status") or {}
    return {
        "apiVersion": resource.get("apiVersion"),
        "kind": resource.get("kind"),
        "metadata": kept,
        "spec": few,
        "status": status if measure_bytes(status) <= MAX_KEPT_BYTES else {},
        _UNREAD: message,
    }


def refuse_unread(resource: Mapping[str, Any]) -> None:
    """Refuses a stream that was not read as a whole.

    Raises:
        InvalidInputError: it is too large, or nested too deep; the field is named.

    >>> refuse_unread({"spec": {}})
    """
    if resource.get(_UNREAD):
        raise InvalidInputError(str(resource[_UNREAD]))
