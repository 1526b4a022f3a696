"""A status is built from the one before: conditions, decisions, events and what is written."""

from __future__ import annotations

from typing import Any

import pytest

from balancedstream_operator.api.conditions import KINDS
from balancedstream_operator.api.resource import MAX_DECISIONS, MAX_MESSAGE
from balancedstream_operator.api.status import (
    StatusDraft,
    changed_fields,
    format_time,
    parse_time,
    summarize,
)


def draft(before: dict[str, Any] | None = None, *, now_s: float = 100.0) -> StatusDraft:
    return StatusDraft(before or {}, generation=2, now_s=now_s)


def after(kind: str, holds: bool | None, reason: str, message: str = "so") -> dict[str, Any]:
    first = draft()
    first.set_condition(kind, holds, reason, message)
    return first.build()


def events(made: StatusDraft) -> list[tuple[str, bool]]:
    return [(event.reason, event.warning) for event in made.events]


def test_a_condition_keeps_its_time_until_its_state_changes() -> None:
    later = draft(after("Balanced", True, "Even"), now_s=200.0)
    later.set_condition("Balanced", True, "Even", "imbalance 1.1")
    (same,) = later.build()["conditions"]
    assert same["lastTransitionTime"] == format_time(100.0)
    assert same["message"] == "imbalance 1.1"
    assert same["observedGeneration"] == 2
    later.set_condition("Balanced", False, "Skewed", "imbalance 1.5")
    (changed,) = later.build()["conditions"]
    assert changed["lastTransitionTime"] == format_time(200.0)


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
    made.set_condition("Balanced", *now, "imbalance")
    assert events(made) == expected


def test_a_change_of_the_reason_alone_is_an_event_too() -> None:
    made = draft(after("ScalingLimited", True, "AtLimit"))
    made.set_condition("ScalingLimited", True, "ExecutorsPending", "1 of 2 did not start")
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
    made.set_condition(kind, holds, "After", "look")
    assert events(made) == [("After", True)]


@pytest.mark.parametrize("kind", ["Ready", "Reconciling", "Stalled"])
def test_what_sums_up_other_conditions_makes_no_event_of_its_own(kind: str) -> None:
    made = draft(after(kind, False, "Before"))
    made.set_condition(kind, True, "After", "look")
    assert events(made) == []


def test_conditions_come_in_one_order() -> None:
    made = draft()
    for kind in reversed(KINDS):
        made.set_condition(kind.name, True, "So", "so")
    assert [c["type"] for c in made.build()["conditions"]] == [kind.name for kind in KINDS]


def test_the_newest_decisions_are_kept() -> None:
    made = draft()
    for epoch in range(MAX_DECISIONS + 3):
        made.add_decision("move", epoch, f"reason {epoch}")
    kept = [decision["epoch"] for decision in made.build()["decisions"]]
    assert kept == list(range(MAX_DECISIONS + 2, 2, -1))
    assert {event.reason for event in made.events} == {"Moving"}


def test_an_effect_is_set_once_on_the_decisions_of_its_plan() -> None:
    made = draft()
    made.add_decision("move", 1, "an older plan")
    made.add_decision("scale", 2, "more")
    made.add_decision("move", 2, "level")
    made.set_effect(2, {"move": "imbalance 1.05, 4 batches later", "scale": "3 executors"})
    made.set_effect(2, {"move": "imbalance 2.00, 9 batches later"})
    effects = [decision.get("effect") for decision in made.build()["decisions"]]
    assert effects == ["imbalance 1.05, 4 batches later", "3 executors", None]


def test_fields_that_are_not_set_stay_and_long_texts_are_cut() -> None:
    made = draft({"planEpoch": 7, "phase": "Starting"})
    made.fields["phase"] = "Running"
    made.add_decision("scale", 7, "x" * 5_000)
    made.set_condition("Accepted", False, "InvalidSpec", "y" * 5_000)
    status = made.build()
    assert (status["planEpoch"], status["phase"]) == (7, "Running")
    assert len(status["decisions"][0]["reason"]) == MAX_MESSAGE
    assert len(status["conditions"][0]["message"]) == MAX_MESSAGE
    assert len(summarize(["z" * 5_000])) == MAX_MESSAGE


def test_a_field_is_recalled_from_the_draft_then_from_before_then_by_default() -> None:
    made = draft({"planEpoch": 7, "executors": None})
    assert made.recall("planEpoch") == 7
    assert made.recall("executors", 2) == 2
    made.fields["planEpoch"] = None
    assert made.recall("planEpoch", 0) == 0


def test_only_changes_are_written_and_what_is_gone_is_null() -> None:
    before = {"a": 1, "b": 2, "gone": 3}
    assert changed_fields(before, {"a": 1, "b": 5, "new": 4}) == {"b": 5, "new": 4, "gone": None}
    assert changed_fields(before, before) == {}


def test_times_survive_the_way_there_and_back() -> None:
    for time_s in (0.0, 1_234_567_890.0, 4_000_000_000.0):
        assert parse_time(format_time(time_s)) == time_s
    assert parse_time(None) is None


def test_what_others_wrote_is_printable_in_conditions_decisions_events_and_words() -> None:
    hostile = "a\x1b]52;c;x\x07\u009b31m\u202eb\nc"
    draft = StatusDraft({"proposal": {"id": "1\x1b", "reason": hostile}}, 1, 0.0)
    draft.set_condition("Running", False, "ApplicationFailed", hostile)
    draft.add_decision("move", 1, hostile)
    draft.set_effect(1, {"move": hostile})
    draft.fields["reason"] = hostile
    status = draft.build()
    [condition] = status["conditions"]
    [decision] = status["decisions"]
    words = [condition["message"], decision["reason"], decision["effect"], status["reason"]]
    words += [status["proposal"]["reason"], *(event.message for event in draft.events)]
    assert len(words) == 6
    assert all(word.isprintable() for word in words)
    # Names are compared, so they stay.
    assert status["proposal"]["id"] == "1\x1b"
