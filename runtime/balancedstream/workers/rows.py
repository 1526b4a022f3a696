"""Rows without some of their cells, created faster than with `Row(*names)(*values)`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyspark.sql import Row

CutRow = Callable[[tuple[Any, ...]], Row]


@functools.cache
def name_columns(names: tuple[str, ...]) -> CutRow:
    """A function that makes a row from the first cells of a longer one.

    The class of its rows has the names, while `pyspark.sql.Row` keeps them in each row.

    >>> name_columns(("key", "n"))(("de", 7, "hidden"))
    Row(key='de', n=7)
    """
    named_row: Any = type("Row", (Row,), {"__fields__": [*names]})
    # The methods of tuple are native, those of `Row` are Python.
    new, cut, kept = tuple.__new__, tuple.__getitem__, slice(len(names))

    def make(row: tuple[Any, ...]) -> Row:
        made: Row = new(named_row, cut(row, kept))
        return made

    return make


def cut_row(row: Any, cells: slice) -> tuple[Any, ...]:
    """A slice of a row that PySpark unpickled, with names if the row has names.

    >>> cut_row(Row(route=3, key="de"), slice(1, None))
    Row(key='de')
    >>> cut_row((3, "de"), slice(1, None))
    ('de',)
    """
    kept = tuple(row)[cells]
    names = getattr(row, "__fields__", None)
    return kept if names is None else name_columns(tuple(names[cells]))(kept)
