"""The name of a shuffle, for its folder, its series in the metrics, and its line in the report."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

READABLE_BYTES = 80
"""Maximum length of the readable part: file systems allow 255 bytes, people read less."""

_PLAIN = re.compile(r"[\w.]+")

_BOUND = re.compile(r"\b[xyz]_\d+ ->|\([xyz]_\d+(?:, [xyz]_\d+)+\) ->")
"""The variables of a Python lambda in Spark's text: `x_1 -> ...`, `(x_1, y_2) -> ...`."""

_VARIABLE = re.compile(r"\b[xyz]_\d+")


def name_shuffle(function: Callable[..., Any], cost_key: str) -> str:
    """Name a shuffle after its function and cost key: always the same, and different from others.

    The name is `function-by-key` if both have only word characters and dots and it is short enough.
    Otherwise other characters become hyphens, the name is cut, and a hash of the text is added.

    Args:
        function: for a partial function, the name of the function inside counts.
        cost_key: a column's name, or the text of a Column. The variables of its lambdas are
            renumbered, because Spark numbers each new lambda higher.

    >>> name_shuffle(repr, "kind")
    'repr-by-kind'
    >>> name_shuffle(repr, "Column<'kind'>")
    'repr-by-kind'
    >>> name_shuffle(repr, "Column<'*(length, 4)'>")
    'repr-by-length-4-76051a31'
    """
    while isinstance(function, partial):
        function = function.func
    qualified = getattr(function, "__qualname__", type(function).__qualname__)
    key = _number_variables(cost_key.removeprefix("Column<'").removesuffix("'>"))
    text = f"{qualified} by {key}"
    readable = re.sub(r"[^\w.]+", "-", text).strip("-")
    cut = readable.encode()[:READABLE_BYTES].decode(errors="ignore")
    if cut == readable and _PLAIN.fullmatch(qualified) and _PLAIN.fullmatch(key):
        return readable
    return f"{cut}-{sha256(text.encode()).hexdigest()[:8]}"


def _number_variables(key: str) -> str:
    bound = [name for binding in _BOUND.findall(key) for name in _VARIABLE.findall(binding)]
    # The sign distinguishes them from columns with names like x_1.
    numbered = {name: f"{name[0]}#{n}" for n, name in enumerate(dict.fromkeys(bound), 1)}
    return _VARIABLE.sub(lambda found: numbered.get(found[0], found[0]), key)
