"""The picture of the first page shows what the page says, and its lengths say its numbers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from pages import ROOT

SVG = "{http://www.w3.org/2000/svg}"
FILE = ROOT / "docs" / "images" / "how-it-works.svg"
PICTURE = ElementTree.fromstring(FILE.read_text("utf-8"))  # noqa: S314 - our own
TASKS = {"cold", "warm", "moved"}
TASK_HEIGHT = 40
EDGES = (0, 381, 663, 980)
"""Where the batches begin, and the last one ends at the latest."""


def read_busy(batch: int) -> list[float]:
    """The busy time of each executor in one of the three batches, from the top."""
    rows: dict[float, float] = {}
    for rect in PICTURE.iter(f"{SVG}rect"):
        x, height = float(rect.get("x", 0)), float(rect.get("height", 0))
        is_task = rect.get("class") in TASKS and height == TASK_HEIGHT
        if is_task and EDGES[batch] < x < EDGES[batch + 1]:
            y = float(rect.get("y", 0))
            rows[y] = rows.get(y, 0.0) + float(rect.get("width", 0))
    return [rows[y] for y in sorted(rows)]


def test_the_steps_are_those_of_the_page_in_its_order() -> None:
    page = (ROOT / "docs" / "how-it-works.md").read_text("utf-8")
    steps = re.findall(r"^\d\. \*\*(\w+)\.\*\*", page, re.M)
    words = [text.text for text in PICTURE.iter(f"{SVG}text")]
    assert steps == ["Measure", "Decide", "Prepare", "Place"]
    assert [word for word in words if word in steps] == steps


def test_the_imbalance_in_the_words_is_that_of_the_lengths() -> None:
    words = " ".join(text.text or "" for text in PICTURE.iter(f"{SVG}text"))
    before, during, after = (read_busy(batch) for batch in range(3))
    assert before == during
    imbalance = [max(busy) / (sum(busy) / len(busy)) for busy in (before, after)]
    assert f"has {imbalance[0]:.2f} times the mean," in words
    assert f"and {imbalance[1]:.2f} without p2" in words


def test_no_batch_waits_for_state() -> None:
    """State is loaded beside the tasks, within the batch before the move, and delays nothing."""
    loads = [
        rect
        for rect in PICTURE.iter(f"{SVG}rect")
        if rect.get("class") == "moved" and float(rect.get("height", 0)) < TASK_HEIGHT
    ]
    assert len(loads) == 2
    for load in loads:
        assert EDGES[1] < float(load.get("x", 0)) < EDGES[2]
    assert max(read_busy(2)) < max(read_busy(1))
