"""The screens of `kubectl bst` on its page are what it prints for such a status."""

from __future__ import annotations

from typing import Any

from pages import ROOT, read_blocks, read_commands

from balancedstream_operator.kubectl.diagnosis import diagnose
from balancedstream_operator.kubectl.screens import show_decisions, show_diagnosis

WIDTH = 100
NOW_S = 1_764_106_000.0
SHOWN = [
    command
    for block in read_blocks(ROOT / "docs" / "kubectl.md")
    if block.is_shell
    for command in read_commands(block.text)
]
URL = "http://prometheus-server.monitoring.svc"
REFUSED = f"Prometheus at {URL} cannot be queried: ConnectionRefusedError: Connection refused"
MOVE = "query q, operator 0: 1 move: imbalance 2.00 → 1.00 (bound 1.00)"
MEASURED = "query q: 3 of 5 recent batches measured, 1200 rows in the last of them; 2 stay"


def screens_of(command: str) -> list[str]:
    return [c.output.strip() for c in SHOWN if c.words[2] == command]


def make_stream(**status: Any) -> dict[str, Any]:
    always = {"observedGeneration": 1, "mode": "Advise/Auto", "executors": 2, "desiredExecutors": 2}
    return {
        "metadata": {"namespace": "shop", "name": "clicks", "generation": 1},
        "status": always | {"backlogRows": 50} | status,
    }


def make_condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    since = "2025-11-25T21:23:30Z"  # a little more than three minutes before
    said = {"type": kind, "status": status, "reason": reason, "message": message}
    return said | {"lastTransitionTime": since}


def test_the_screen_of_a_stream_that_is_not_measured() -> None:
    held = "The stream keeps running as it is: nothing is moved, added or removed"
    stream = make_stream(
        phase="Starting",
        imbalanceText="1.00 (1.00)",
        conditions=[
            make_condition("MetricsAvailable", "False", "Missing", REFUSED),
            make_condition("Fallback", "True", "MetricsMissing", f"{REFUSED}. {held}"),
        ],
    )
    assert show_diagnosis(diagnose(stream, NOW_S), WIDTH) == screens_of("status")[0]


def test_the_screen_of_a_stream_with_a_proposal() -> None:
    stream = make_stream(
        phase="Running",
        imbalanceText="2.00 (1.00)",
        reason=f"{MOVE}; {MEASURED}",
        proposal={"id": "1-888dec", "reason": f"would move: {MOVE}"},
    )
    assert show_diagnosis(diagnose(stream, NOW_S), WIDTH) == screens_of("status")[1]


def test_the_screen_of_the_last_decisions() -> None:
    approved = "proposal 1-888dec was approved; 1 move: imbalance 2.00 → 1.00 (bound 1.00)"
    decisions = [
        {
            "time": "2026-11-25T21:26:41Z",
            "kind": "move",
            "epoch": 1,
            "reason": approved,
            "effect": "imbalance 1.00, 5 batches later",
        },
        {
            "time": "2026-11-25T21:26:11Z",
            "kind": "advise",
            "epoch": 0,
            "reason": f"would move: {MOVE}",
        },
    ]
    now = "query q, operator 0: no change: imbalance 1.00 is not above 1.10"
    stream = make_stream(reason=f"{now}; {MEASURED}", decisions=decisions)
    assert show_decisions(stream, WIDTH) == screens_of("explain")[0]
