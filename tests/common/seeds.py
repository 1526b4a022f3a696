"""A seed that a run of pytest has once, however many workers it has."""

from __future__ import annotations

import random
from typing import Any

import pytest


class RunSeed:
    """A seed that was given, or is drawn; workers get the one of the process that starts them.

    Args:
        config: of pytest.
        name: of the seed, unlike that of any other.
        given: the seed; None to draw one.

    Attributes:
        value: the seed.
    """

    def __init__(self, config: pytest.Config, name: str, given: int | None = None) -> None:
        handed: dict[str, int] = getattr(config, "workerinput", {})
        drawn = random.SystemRandom().randrange(10**9) if given is None else given
        self._name = name
        self.value = handed.get(name, drawn)
        config.pluginmanager.register(self)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hands the seed to a worker of pytest-xdist."""
        node.workerinput[self._name] = self.value
