from __future__ import annotations

import doctest
from types import ModuleType

import compatibility
import nexmark_on_off
import plugin_apps
import pytest
import scaling_real
import summarize
from flink import figures
from harness import counting, results
from nexmark import answers, events
from shuffle_simulation import measuring, scheduling, simulation
from simulation import calibration, model, traces
from tables import headlines, markdown


@pytest.mark.parametrize(
    "module",
    [
        measuring,
        scheduling,
        simulation,
        calibration,
        model,
        traces,
        summarize,
        results,
        headlines,
        markdown,
        counting,
        answers,
        events,
        nexmark_on_off,
        scaling_real,
        compatibility,
        plugin_apps,
        figures,
    ],
    ids=lambda module: module.__name__,
)
def test_the_examples_in_docstrings_hold(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
