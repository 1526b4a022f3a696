"""What a shuffle is called: its folder, its series in the metrics, and its line in the report."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

READABLE_BYTES = 80
"""So much of a name can be read: file systems take 255 bytes, and people less."""

_PLAIN = re.compile(r"[\w.]+")

_BOUND = re.compile(r"\b[xyz]_\d+ ->|\([xyz]_\d+(?:, [xyz]_\d+)+\) ->")
"""Where Spark's text binds the variables of a Python lambda: `x_1 -> ...`, `(x_1, y_2) -> ...`."""

_VARIABLE = re.compile(r"\b[xyz]_\d+")


def name_shuffle(function: Callable[..., Any], cost_key: str) -> str:
    """Name a shuffle by its function and cost key: alike whenever it is built, unlike others.

    `function-by-key` where both are word characters and dots, and the name is not too long. Else
    what is neither becomes hyphens, the name is cut, and a hash of the whole text is added.

    Args:
        function: of a partial one, it is the name of the function inside.
        cost_key: a column's name, or the text of a Column. The variables of its lambdas are
            numbered anew, for Spark counts them up with every lambda that is built.

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
    # The sign keeps them apart from columns that are called x_1.
    numbered = {name: f"{name[0]}#{n}" for n, name in enumerate(dict.fromkeys(bound), 1)}
    return _VARIABLE.sub(lambda found: numbered.get(found[0], found[0]), key)
