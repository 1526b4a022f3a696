"""A status is read as any release wrote it, and written as this one has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from balancedstream_operator.api.conditions import BALANCED, Condition
from balancedstream_operator.api.schema import camel, describe
from balancedstream_operator.api.status import (
    UNSEEN,
    HotPartition,
    PastDecision,
    Proposal,
    Status,
    StatusCondition,
    format_time,
    parse_time,
    read_status,
    write_status,
)

LONG = "x\n" * 10_000

FULL = Status(
    phase="Running",
    observed_generation=3,
    imbalance=1.25,
    plan_epoch=7,
    decisions=(PastDecision(time=format_time(9.0), kind="move", epoch=7, reason="hot"),),
    proposal=Proposal(id="8-1", time=format_time(9.0), reason="would move"),
    conditions=(
        StatusCondition(
            type="Balanced",
            status="False",
            reason="Skewed",
            message="imbalance 1.25",
            last_transition_time=format_time(9.0),
            observed_generation=3,
        ),
    ),
)


def test_what_is_written_is_read_again() -> None:
    written = write_status(FULL)
    assert {*written} == {camel(field.name) for field in fields(Status)}
    assert written["decisions"] == [
        {"time": "1970-01-01T00:00:09Z", "kind": "move", "epoch": 7, "reason": "hot"}
    ]
    assert written["executors"] is None, "a merge patch removes it"
    assert read_status({"status": written}) == FULL


@pytest.mark.parametrize("resource", [{}, {"status": None}, {"status": {}}, {"status": "lost"}])
def test_a_stream_that_no_operator_has_looked_at_has_an_empty_status(
    resource: dict[str, Any],
) -> None:
    status = read_status(resource)
    assert status == Status()
    assert status.observed_generation == UNSEEN
    assert status.recall(BALANCED) == Condition(BALANCED, None, "", "")


def test_an_absent_field_is_a_null_and_a_zero_is_a_number() -> None:
    status = read_status({"status": {"planEpoch": 7, "executors": None, "appliedEpoch": 0}})
    assert status == Status(plan_epoch=7, applied_epoch=0)


def test_what_another_release_wrote_is_left_out_where_it_is_not_known_or_does_not_fit() -> None:
    newer = {
        "mood": "good",
        "planEpoch": "eight",
        "decisions": [{"kind": "split", "epoch": 8, "cost": 3}],
        "conditions": [{"type": "Happy", "status": "True"}, {"type": "Balanced"}],
        "proposal": [],
    }
    status = read_status({"status": newer})
    assert status.plan_epoch is None
    assert status.decisions == (PastDecision(kind="split", epoch=8),)
    assert [condition.type for condition in status.conditions] == ["Happy", "Balanced"]
    assert status.recall(BALANCED).holds is None
    assert status.proposal is None


def test_times_survive_the_way_there_and_back() -> None:
    for time_s in (0.0, 1_234_567_890.0, 4_000_000_000.0):
        assert parse_time(format_time(time_s)) == time_s
    assert parse_time(None) is None


def _find_too_long(written: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(written, dict):
        for name, value in written.items():
            yield from _find_too_long(value, schema["properties"][name], f"{path}.{name}")
    elif isinstance(written, list):
        for value in written:
            yield from _find_too_long(value, schema["items"], path)
    elif isinstance(written, str) and len(written) > schema.get("maxLength", len(written)):
        yield path


def test_a_text_that_is_too_long_is_cut_because_the_api_server_refuses_a_whole_status() -> None:
    status = Status(
        phase=LONG,
        reason=LONG,
        standing=LONG,
        selector=LONG,
        decisions=(PastDecision(time=format_time(9.0), kind="move", epoch=7, reason=LONG),),
        proposal=Proposal(id="8-1", time=format_time(9.0), reason=LONG),
        hottest_partitions=(HotPartition(query=LONG, operator=0, partition=1),),
    )
    assert list(_find_too_long(write_status(status), describe(Status), "status")) == []
