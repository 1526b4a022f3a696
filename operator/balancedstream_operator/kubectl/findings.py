"""What `doctor` finds: values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "problem", "unseen"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `doctor`.

    Attributes:
        level: ok; problem; or unseen for what cannot be known from here.
        sentence: what was found, and what to do about a problem.
    """

    level: Level
    sentence: str
