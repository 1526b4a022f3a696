"""Which panels of the dashboard an end-to-end test asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dashboards import HOT_KEYS, SHUFFLES, find_empty_panels

STREAM: Any = SimpleNamespace(namespace="shop", name="clicks")


class Knowing:
    """A Prometheus that has the metrics whose names do not contain a word."""

    def __init__(self, missing: str) -> None:
        self._missing = missing
        self.asked: list[str] = []

    def query(self, expression: str) -> list[int]:
        self.asked.append(expression)
        return [] if self._missing in expression else [1]


def ask(missing: str, *rows: str) -> tuple[list[str], list[str]]:
    prometheus: Any = Knowing(missing)
    return find_empty_panels(prometheus, STREAM, *rows), prometheus.asked


def test_a_stream_without_hot_keys_and_shuffles_is_not_asked_for_them() -> None:
    for missing in ("_key", "_shuffle_"):
        empty, asked = ask(missing)
        assert empty == []
        assert len(asked) >= 20
        assert not any("$" in expression for expression in asked)


@pytest.mark.parametrize(("row", "name"), [(HOT_KEYS, "_key"), (SHUFFLES, "_shuffle_")])
def test_a_row_is_asked_for_alone_and_what_is_empty_is_named(row: str, name: str) -> None:
    assert ask("nothing", row)[0] == []
    empty, asked = ask(name, row)
    assert len(empty) == len(asked) >= 4
    assert all(expression in said for said, expression in zip(empty, asked, strict=True))


def test_a_row_that_is_not_there_is_no_row_without_gaps() -> None:
    with pytest.raises(AssertionError, match="such a row is there"):
        ask("nothing", "Cold keys")
