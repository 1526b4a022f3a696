"""From a measurement to a plan: what is asked of the driver, and what is left out."""

from __future__ import annotations

from dataclasses import replace

from balancedstream.core.past import Past
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import SlotHolder, TaskSample
from balancedstream.core.wire.plan import KeyPlacement, Plan
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.planner import DecisionInput, choose_plan
from balancedstream_operator.plan.record import Refusals

NOW_S = 1_000.0
SKEWED = Measurement(
    NOW_S,
    4,
    {"1": 1, "2": 1},
    tuple(
        TaskSample("q", 0, p, number, "1", busy_s, 10, 1000, NOW_S)
        for number in (7, 8, 9)
        for p, busy_s in enumerate((4.0, 3.0, 0.5, 0.5))
    ),
    last_batches={"q": 9},
)


def given(*placed: KeyPlacement) -> DecisionInput:
    plan = Plan(4, ("1", "2"), {("q", 0): (0, 0, 0, 0)}, key_placements=placed)
    return DecisionInput(plan, Past(2, planned_after={"q": 1}))


def test_keys_that_a_plan_has_no_room_for_are_named_with_the_reason() -> None:
    placed = [KeyPlacement("q", f'"{n:0200}"', 2) for n in range(2_500)]
    choice = choose_plan(SKEWED, Policy(), given(*placed), 5)
    assert choice.plan is not None
    count = len(placed) - len(choice.plan.key_placements)
    assert count > 0
    assert choice.left_out == (
        f"{count} keys that are not hot go back, because a plan has room for 512 KiB"
    )
    choice = choose_plan(SKEWED, Policy(), given(*placed[:3]), 5)
    assert choice.plan is not None
    assert (len(choice.plan.key_placements), choice.left_out) == (3, "")


def test_a_key_that_the_driver_refused_is_not_said_to_have_no_room() -> None:
    refused, placed = KeyPlacement("q", "1", 2), KeyPlacement("q", "2", 2)
    start = replace(given(refused, placed), refusals=Refusals(keys=(("q", "1"),)))
    choice = choose_plan(SKEWED, Policy(), start, 5)
    assert choice.plan is not None
    assert (choice.plan.key_placements, choice.left_out) == ((placed,), "")


def test_what_moves_to_an_executor_that_was_to_be_started_goes_on_there() -> None:
    plan = Plan(4, ("1", "2", "+1"), {("q", 0): (0, 2, 1, 0)})
    start = DecisionInput(plan, Past(3, planned_after={"q": 1}, moved=True))
    under_way = replace(SKEWED, executors={"1": 1, "2": 1, "3": 1}, under_way={("q", 0): 1})
    policy = Policy(scaling=ScalingPolicy(min_executors=4, max_executors=4))
    more = choose_plan(under_way, policy, start, 5)
    assert more.plan is not None
    assert more.plan.executors == ("1", "2", "3", "+1")
    assert more.plan.owners("q", 0) == {0: "1", 2: "2", 3: "1"}


def test_a_stream_that_waits_for_data_does_not_wait_for_batches_that_show_a_plan() -> None:
    start = replace(given(), past=Past(2, planned_after={"q": 9}, moved=True))
    assert "visible from batch 11" in choose_plan(SKEWED, Policy(), start, 5).waits
    idle = replace(SKEWED, idle_s={"q": NOW_S - 5.0})
    assert choose_plan(idle, Policy(), start, 5).waits == ""


def test_no_plan_comes_before_it_is_known_how_many_slots_a_query_in_real_time_mode_needs() -> None:
    live = SlotHolder("live", "real-time", None)
    choice = choose_plan(replace(SKEWED, holders=(live,)), Policy(), given(), 5)
    assert choice.plan is None
    assert choice.waits.startswith("query live runs in Real-Time Mode")
    for holder in (replace(live, slots=1), replace(live, trigger="continuous")):
        assert choose_plan(replace(SKEWED, holders=(holder,)), Policy(), given(), 5).waits == ""
