"""What several of these tests begin with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from simulated_runs import Scenario, Simulation, new_history

from balancedstream.record.history import History

# How long an example takes says something of the machine, and nothing of what is tested.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture
def travel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the time zone of this process until the test ends."""

    def go(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield go
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def empty_history() -> Callable[[], History]:
    """Returns a function that makes a history of a run in which nothing happened yet."""
    return new_history


@pytest.fixture
def simulate() -> Callable[..., History]:
    """Returns a function that simulates scenarios, one after the other, into one history."""

    def run(*scenarios: Scenario, history: History | None = None) -> History:
        history = new_history() if history is None else history
        for scenario in scenarios:
            Simulation(scenario, history).run()
        return history

    return run


@pytest.fixture
def scenario() -> type[Scenario]:
    return Scenario
