"""Reads pages of the report strictly, and a run with hot keys to make one of."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from balancedstream.core.samples import KeySample
from balancedstream.record.history import History
from balancedstream.record.records import BatchRecord, KeyMoveRecord, OperatorBatchLoad
from balancedstream.report.page import render_page
from balancedstream.report.summary import summarize

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Outline(HTMLParser):
    """Reads a page strictly: every element is closed in order, attributes are collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page_of(history: History, notes: tuple[str, ...] = ()) -> str:
    return render_page(history, summarize(history, notes))


def outline(page: str) -> Outline:
    reader = Outline()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def check_drawings(read: Outline) -> None:
    """Every coordinate is a finite number inside the drawing."""
    for tag, name, value in read.attributes:
        if name in {"x", "y", "x1", "x2", "y1", "y2", "width", "height"} and tag != "meta":
            assert re.fullmatch(r"-?\d+(\.\d)?", value), (tag, name, value)
            assert -20 <= float(value) <= 980, (tag, name, value)
        if name == "d":
            coordinates = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", value)]
            assert all(-20 <= n <= 980 for n in coordinates)
            assert "nan" not in value


def run_with_a_hot_key(history: History, keys: int = 2, batches: int = 12) -> History:
    """Keys of partition 0, the last of which goes to partition 1 with batch 6."""
    leaver = f'"<k{keys - 1}>"'
    for number in range(batches):
        load = OperatorBatchLoad(0, "keys", (3.0, 1.0), ("0", "1"), 1.5, 1.5)
        history.add_batch(BatchRecord("q", number, 1.7e9 + number, 3_000, 10, None, 2, (load,)))
        history.add_key_samples(
            KeySample("q", 0, f'"<k{key}>"', int(key == keys - 1 and number >= 6), number, 1.0)
            for key in range(keys)
        )
        if number == 5:
            history.add_key_move(KeyMoveRecord("q", 0, leaver, 0, 1, 1.7e9 + 5, "two hot keys", 5))
        if number == 6:
            history.settle_key_move("q", leaver, settled_s=1.7e9 + 6, settled_batch=6)
    return history
