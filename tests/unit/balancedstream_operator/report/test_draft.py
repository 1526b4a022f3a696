"""A status is built from the one before: conditions, decisions, events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancedstream_operator.api.conditions import (
    ACCEPTED,
    BALANCED,
    KINDS,
    NAMED,
    RUNNING,
    SCALING_LIMITED,
    Condition,
)
from balancedstream_operator.api.resource import MAX_DECISIONS, MAX_MESSAGE
from balancedstream_operator.api.status import (
    Proposal,
    Status,
    format_time,
    summarize,
    write_status,
)
from balancedstream_operator.report.balance import note_effects
from balancedstream_operator.report.draft import StatusDraft


def draft(before: Status | None = None, *, now_s: float = 100.0) -> StatusDraft:
    return StatusDraft(before or Status(), generation=2, now_s=now_s)


def after(kind: str, holds: bool | None, reason: str, message: str = "so") -> Status:
    first = draft()
    first.set(Condition(NAMED[kind], holds, reason, message))
    return first.build().status


def events(made: StatusDraft) -> list[tuple[str, bool]]:
    return [(event.reason, event.warning) for event in made.events]


def test_a_condition_keeps_its_time_until_its_state_changes() -> None:
    later = draft(after("Balanced", True, "Even"), now_s=200.0)
    later.set(Condition(BALANCED, True, "Even", "imbalance 1.1"))
    (same,) = later.build().status.conditions
    assert same.last_transition_time == format_time(100.0)
    assert same.message == "imbalance 1.1"
    assert same.observed_generation == 2
    later.set(Condition(BALANCED, False, "Skewed", "imbalance 1.5"))
    (changed,) = later.build().status.conditions
    assert changed.last_transition_time == format_time(200.0)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(None, (True, "Even"), [], id="starts as it should be"),
        pytest.param(None, (False, "Skewed"), [("Skewed", False)], id="starts otherwise"),
        pytest.param((None, "NoDriver"), (True, "Even"), [], id="gets known as it should be"),
        pytest.param((True, "Even"), (True, "Even"), [], id="stays"),
        pytest.param((True, "Even"), (False, "Skewed"), [("Skewed", False)], id="changes"),
        pytest.param((False, "Skewed"), (True, "Even"), [("Even", False)], id="changes back"),
        pytest.param((True, "Even"), (None, "NoDriver"), [], id="gets unknown"),
    ],
)
def test_a_change_of_a_condition_is_an_event(
    before: tuple[bool | None, str] | None,
    now: tuple[bool | None, str],
    expected: list[tuple[str, bool]],
) -> None:
    made = draft(after("Balanced", *before) if before else None)
    made.set(Condition(BALANCED, *now, "imbalance"))
    assert events(made) == expected


def test_a_change_of_the_reason_alone_is_an_event_too() -> None:
    made = draft(after("ScalingLimited", True, "AtLimit"))
    made.set(Condition(SCALING_LIMITED, True, "ExecutorsPending", "1 of 2 did not start"))
    assert events(made) == [("ExecutorsPending", True)]
    assert made.events[0].message == "ScalingLimited is True: 1 of 2 did not start"


@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        ("Accepted", False),
        ("PlanRefused", True),
        ("PassFailed", True),
        ("Running", False),
        ("MetricsAvailable", False),
        ("ScalingLimited", True),
        ("Fallback", True),
        ("Unsplittable", True),
        ("CostsTrusted", False),
        ("ExecutorsLost", True),
    ],
)
def test_what_needs_attention_is_a_warning(kind: str, holds: bool) -> None:
    made = draft(after(kind, not holds, "Before"))
    made.set(Condition(NAMED[kind], holds, "After", "look"))
    assert events(made) == [("After", True)]


@pytest.mark.parametrize("kind", ["Ready", "Reconciling", "Stalled"])
def test_what_sums_up_other_conditions_makes_no_event_of_its_own(kind: str) -> None:
    made = draft(after(kind, False, "Before"))
    made.set(Condition(NAMED[kind], True, "After", "look"))
    assert events(made) == []


def test_conditions_come_in_one_order() -> None:
    made = draft()
    for kind in reversed(KINDS):
        made.set(Condition(kind, True, "So", "so"))
    assert [c.type for c in made.build().status.conditions] == [kind.name for kind in KINDS]


def test_the_newest_decisions_are_kept() -> None:
    made = draft()
    for epoch in range(MAX_DECISIONS + 3):
        made.add_decision("move", epoch, f"reason {epoch}")
    kept = [decision.epoch for decision in made.build().status.decisions]
    assert kept == list(range(MAX_DECISIONS + 2, 2, -1))
    assert {event.reason for event in made.events} == {"Moving"}


def test_an_effect_is_set_once_on_the_decisions_of_its_plan() -> None:
    made = draft()
    made.add_decision("move", 1, "an older plan")
    made.add_decision("scale", 2, "more")
    made.add_decision("move", 2, "level")
    decisions = made.build().status.decisions
    first = {"move": "imbalance 1.05, 4 batches later", "scale": "3 executors"}
    decisions = note_effects(decisions, 2, first)
    decisions = note_effects(decisions, 2, {"move": "imbalance 2.00, 9 batches later"})
    effects = [decision.effect for decision in decisions]
    assert effects == ["imbalance 1.05, 4 batches later", "3 executors", None]


def test_fields_that_are_not_set_stay_and_long_texts_are_cut() -> None:
    made = draft(Status(plan_epoch=7, phase="Starting"))
    made.status = replace(made.status, phase="Running")
    made.add_decision("scale", 7, "x" * 5_000)
    made.set(Condition(ACCEPTED, False, "InvalidSpec", "y" * 5_000))
    status = made.build().status
    assert (status.plan_epoch, status.phase) == (7, "Running")
    assert len(status.decisions[0].reason) == MAX_MESSAGE
    assert len(status.conditions[0].message or "") == MAX_MESSAGE
    assert len(summarize(["z" * 5_000])) == MAX_MESSAGE


def test_what_others_wrote_is_printable_in_conditions_decisions_events_and_words() -> None:
    hostile = "a\x1b]52;c;x\x07\u009b31m\u202eb\nc"
    made = draft(Status(proposal=Proposal(id="1\x1b", reason=hostile)))
    made.set(Condition(RUNNING, False, "ApplicationFailed", hostile))
    made.add_decision("move", 1, hostile)
    decisions = note_effects(made.status.decisions, 1, {"move": hostile})
    made.status = replace(made.status, decisions=decisions, reason=hostile)
    status = write_status(made.build().status)
    [condition] = status["conditions"]
    [decision] = status["decisions"]
    words = [condition["message"], decision["reason"], decision["effect"], status["reason"]]
    words += [status["proposal"]["reason"], *(event.message for event in made.events)]
    assert len(words) == 6
    assert all(word.isprintable() for word in words)
    # Names are compared, so they stay.
    assert status["proposal"]["id"] == "1\x1b"
