"""The tree of errors that is drawn is the one that there is."""

from __future__ import annotations

import inspect
import re

from balancedstream_operator import errors


def read_drawn_parents() -> dict[str, str]:
    """The parent of each class, by the drawing on top of the module."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([ │├└─]*)(\w+Error)\b", line)
        if found:
            depth = len(found[1])
            above = [entry for entry in above if entry[0] < depth]
            if above:
                parents[found[2]] = above[-1][1]
            above.append((depth, found[2]))
    return parents


def test_the_tree_of_errors_is_as_it_is_drawn() -> None:
    classes = dict(inspect.getmembers(errors, inspect.isclass))
    ours = {n: c for n, c in classes.items() if c.__module__ == errors.__name__}
    assert read_drawn_parents() == {name: c.__bases__[0].__name__ for name, c in ours.items()}
