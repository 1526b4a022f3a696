"""What all arms share, on Spark and on Flink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from flink.installed import Flink
from flink.topics import Topics


@dataclass(frozen=True)
class Setting:
    """What all arms of a run share.

    Attributes:
        folder: for checkpoints and logs.
        topics: which rows come from and results go to.
        most: workers that there ever are.
        cores: that a worker may use.
        partitions: of Spark's state.
        rounds: of work for each row, see `Work.java`.
        flink: the installed one.
        jar: of what both engines run.
    """

    folder: Path
    topics: Topics
    most: int
    cores: float
    partitions: int
    rounds: int
    flink: Flink
    jar: Path


class Arm(ABC):
    """A query that runs."""

    @abstractmethod
    def rescale(self, workers: int) -> None:
        """Gives it another number of workers, and returns when it has them."""

    @abstractmethod
    def check_alive(self) -> None:
        """Raises MeasurementError if it ended."""
