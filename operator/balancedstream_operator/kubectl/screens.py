"""Text for people: pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from balancedstream.core.printing import printable
from balancedstream_operator.api.status import read_status
from balancedstream_operator.kubectl.diagnosis import Diagnosis
from balancedstream_operator.kubectl.findings import Finding

_MARGIN = 9
"""Columns of the words on the left of a screen, such as `wrong`."""


def show_diagnosis(found: Diagnosis, width: int) -> str:
    """One stream on one screen."""
    parts = (("wrong", found.wrong), ("doing", found.doing), ("to do", found.to_do))
    lines = [_block(found.stream, f"{found.stream}  {found.state}", width, 0)]
    for word, sentences in parts:
        for n, sentence in enumerate(sentences or ("nothing",)):
            lines.append(_block(word if n == 0 else "", sentence, width))
    return "\n".join(lines)


def show_decisions(resource: Mapping[str, Any], width: int) -> str:
    """The last decisions, newest first, each with its reason and what was measured after it."""
    status = read_status(resource)
    lines = [_block("now", status.reason or "no reason is given yet", width)]
    for made in status.decisions:
        lines += ["", printable(f"{made.time}  {made.kind}, plan {made.epoch}")]
        lines.append(_block("why", made.reason, width))
        if made.kind in {"move", "scale"}:
            lines.append(_block("effect", made.effect or "not measured yet", width))
    if not status.decisions:
        lines += ["", "Nothing was moved, scaled or advised yet."]
    return "\n".join(lines)


def show_findings(findings: Iterable[Finding], width: int) -> str:
    """One line a finding; a long one goes on below its words."""
    return "\n".join(_block(found.level, found.sentence, width) for found in findings)


def _block(word: str, sentence: str, width: int, margin: int = _MARGIN) -> str:
    word = printable(word)
    first = word.ljust(margin) if margin else ""
    return textwrap.fill(
        printable(sentence),
        width,
        initial_indent=first,
        subsequent_indent=" " * (margin or 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
