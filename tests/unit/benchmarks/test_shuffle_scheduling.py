"""The state machine of Online Shuffle Grouping: records go to the least loaded instance."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shuffle_simulation.scheduling import Answer, Assignment, GreedyScheduler, Marker, Phase

from balancedstream.errors import InvalidInputError


class ItsOwnCost:
    """Estimates for items that are their own cost in seconds."""

    def estimate(self, item: float, /) -> float:
        return item


class Constant:
    """Every record is estimated alike."""

    def __init__(self, cost_s: float) -> None:
        self._cost_s = cost_s

    def estimate(self, _item: float, /) -> float:
        return self._cost_s


def scheduling(instances: int, *, window: int = 1024) -> GreedyScheduler[float]:
    """A scheduler that has all estimates and is about to send its markers."""
    scheduler = GreedyScheduler[float](instances, window=window)
    for instance in range(instances):
        scheduler.accept_estimates(instance, ItsOwnCost())
    return scheduler


def send_markers(scheduler: GreedyScheduler[float], cost_s: float = 1.0) -> list[Marker]:
    """Assigns a record of that cost to each instance."""
    markers = [scheduler.assign(cost_s).marker for _ in scheduler.instances]
    return [marker for marker in markers if marker]


def running(instances: int, *, window: int = 1024) -> GreedyScheduler[float]:
    """A scheduler whose estimated loads are level, at one second, and right."""
    scheduler = scheduling(instances, window=window)
    answer_all(scheduler, send_markers(scheduler))
    return scheduler


def answer_all(
    scheduler: GreedyScheduler[float], markers: Sequence[Marker], delta_s: float = 0.0
) -> None:
    for marker in markers:
        assert scheduler.accept_answer(Answer(marker.instance, marker.epoch, delta_s))


def assign_all(scheduler: GreedyScheduler[float], costs_s: Sequence[float]) -> list[int]:
    return [scheduler.assign(cost_s).instance for cost_s in costs_s]


def sum_loads(instances: Sequence[int], costs_s: Sequence[float]) -> dict[int, float]:
    loads_s: dict[int, float] = {}
    for instance, cost_s in zip(instances, costs_s, strict=True):
        loads_s[instance] = loads_s.get(instance, 0.0) + cost_s
    return loads_s


def phase_of(scheduler: GreedyScheduler[float]) -> Phase:
    """The phase, anew each time: a type checker takes an attribute to stay as it was."""
    return scheduler.phase


def test_records_are_given_in_turn_until_every_instance_has_sent_estimates() -> None:
    scheduler = GreedyScheduler[float](3)
    assert assign_all(scheduler, [9.0, 1.0, 1.0, 1.0]) == [0, 1, 2, 0]
    scheduler.accept_estimates(0, ItsOwnCost())
    scheduler.accept_estimates(2, ItsOwnCost())
    assert phase_of(scheduler) is Phase.ROUND_ROBIN
    assert assign_all(scheduler, [9.0, 1.0]) == [1, 2]
    scheduler.accept_estimates(1, ItsOwnCost())
    assert phase_of(scheduler) is Phase.SEND_ALL


def test_the_first_answers_account_for_what_was_given_in_turn() -> None:
    scheduler = scheduling(2)
    first, second = send_markers(scheduler)
    scheduler.accept_answer(Answer(0, first.epoch, 10.0))
    scheduler.accept_answer(Answer(1, second.epoch, 30.0))
    assert scheduler.loads_s == {0: 11.0, 1: 31.0}


def test_each_instance_gets_one_marker_with_its_load_of_this_epoch() -> None:
    scheduler = scheduling(3)
    markers = [scheduler.assign(cost_s).marker for cost_s in (5.0, 1.0, 2.0, 1.0)]
    assert markers == [Marker(0, 1, 5.0), Marker(1, 1, 1.0), Marker(2, 1, 2.0), None]


def test_records_are_assigned_greedily_while_answers_are_awaited() -> None:
    scheduler = scheduling(3)
    assign_all(scheduler, [5.0, 1.0, 2.0])
    assert phase_of(scheduler) is Phase.WAIT_ALL
    assert assign_all(scheduler, [2.0, 2.0, 3.0, 1.0]) == [1, 2, 1, 2]


def test_loads_are_corrected_when_the_last_answer_arrives_and_not_before() -> None:
    scheduler = scheduling(2)
    markers = send_markers(scheduler)
    answer_all(scheduler, markers[1:], 5.0)
    assert scheduler.loads_s == {0: 1.0, 1: 1.0}
    answer_all(scheduler, markers[:1], -0.5)
    assert scheduler.loads_s == {0: 0.5, 1: 6.0}
    assert phase_of(scheduler) is Phase.RUN


def test_an_answer_that_arrives_before_all_markers_were_sent_counts() -> None:
    scheduler = scheduling(2)
    first = scheduler.assign(1.0).marker
    assert first
    assert scheduler.accept_answer(Answer(0, first.epoch, 2.0))
    second = scheduler.assign(1.0).marker
    assert second
    assert scheduler.accept_answer(Answer(1, second.epoch, 3.0))
    assert scheduler.loads_s == {0: 3.0, 1: 4.0}


def test_all_are_asked_anew_after_a_window_of_records_for_each_instance() -> None:
    scheduler = running(3, window=4)
    assign_all(scheduler, [1.0] * 11)
    assert (scheduler.phase, scheduler.epoch) == (Phase.RUN, 1)
    scheduler.assign(1.0)
    assert (scheduler.phase, scheduler.epoch) == (Phase.SEND_ALL, 2)
    assert [marker.epoch for marker in send_markers(scheduler)] == [2, 2, 2]


@pytest.mark.parametrize("phase", [Phase.SEND_ALL, Phase.WAIT_ALL, Phase.RUN])
def test_new_estimates_replace_the_former_and_all_are_asked_anew(phase: Phase) -> None:
    scheduler = in_phase(phase)
    epoch = scheduler.epoch
    assert scheduler.accept_estimates(0, Constant(7.0))
    assert (scheduler.phase, scheduler.epoch) == (Phase.SEND_ALL, epoch + 1)
    before_s = scheduler.loads_s
    assert [marker.instance for marker in send_markers(scheduler)] == [0, 1]
    assert scheduler.loads_s == {0: before_s[0] + 7.0, 1: before_s[1] + 1.0}


def in_phase(phase: Phase) -> GreedyScheduler[float]:
    """Two instances, both marked in an epoch that is over; then brought into a phase."""
    scheduler = running(2, window=1)
    assign_all(scheduler, [1.0, 1.0])
    if phase in (Phase.WAIT_ALL, Phase.RUN):
        markers = send_markers(scheduler)
        if phase is Phase.RUN:
            answer_all(scheduler, markers)
    assert phase_of(scheduler) is phase
    return scheduler


@pytest.mark.parametrize("phase", [Phase.SEND_ALL, Phase.WAIT_ALL, Phase.RUN])
def test_an_answer_of_an_older_epoch_is_dropped(phase: Phase) -> None:
    scheduler = in_phase(phase)
    before_s = scheduler.loads_s
    for instance in (0, 1):
        assert not scheduler.accept_answer(Answer(instance, scheduler.epoch - 1, 100.0))
    assert (scheduler.phase, scheduler.loads_s) == (phase, before_s)


def test_an_answer_is_used_once() -> None:
    scheduler = scheduling(2)
    first, second = send_markers(scheduler)
    answer = Answer(0, first.epoch, 5.0)
    assert scheduler.accept_answer(answer)
    assert not scheduler.accept_answer(answer)
    answer_all(scheduler, [second])
    assert not scheduler.accept_answer(answer)
    assert scheduler.loads_s == {0: 6.0, 1: 1.0}


def test_an_answer_that_nobody_asked_for_is_dropped() -> None:
    scheduler = scheduling(2)
    assert not scheduler.accept_answer(Answer(0, scheduler.epoch, 5.0)), "its marker was not sent"
    send_markers(scheduler)
    assert not scheduler.accept_answer(Answer(0, scheduler.epoch + 1, 5.0))
    assert not scheduler.accept_answer(Answer(2, scheduler.epoch, 5.0))
    assert not GreedyScheduler[float](2).accept_answer(Answer(0, 0, 5.0))


@pytest.mark.parametrize("delta_s", [math.nan, math.inf, -math.inf])
def test_an_answer_that_is_no_time_is_refused(delta_s: float) -> None:
    scheduler = scheduling(1)
    (marker,) = send_markers(scheduler)
    with pytest.raises(InvalidInputError, match="delta_s: instance 0"):
        scheduler.accept_answer(Answer(0, marker.epoch, delta_s))
    answer_all(scheduler, [marker])


@settings(max_examples=60)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(1, 3))
def test_with_known_costs_it_is_within_2_minus_1_over_k_of_the_best_makespan(
    weights: list[int], count: int
) -> None:
    costs_s = [float(weight) for weight in weights]
    best_s = min(
        max(sum_loads(choice, costs_s).values())
        for choice in itertools.product(range(count), repeat=len(costs_s))
    )
    reached_s = max(sum_loads(assign_all(scheduling(count), costs_s), costs_s).values())
    assert reached_s <= (2 - 1 / count) * best_s


@settings(max_examples=60)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=300), st.integers(1, 12))
def test_with_known_costs_no_instance_has_more_than_the_mean_and_one_record(
    costs_s: list[float], count: int
) -> None:
    loads_s = sum_loads(assign_all(scheduling(count), costs_s), costs_s)
    bound_s = math.fsum(costs_s) / count + (1 - 1 / count) * max(costs_s)
    # The least float has no half.
    assert max(loads_s.values()) <= bound_s * (1 + 1e-9) + 1e-9


@settings(max_examples=60)
@given(st.lists(st.integers(0, 5), max_size=100), st.integers(1, 6))
def test_each_record_goes_to_the_least_loaded_and_of_these_to_the_one_given_the_fewest(
    weights: list[int], count: int
) -> None:
    scheduler = running(count, window=1000)
    loads_s, given_to = [0.0] * count, [0] * count
    for weight in weights:
        least = min(range(count), key=lambda i: (loads_s[i], given_to[i], i))
        assert scheduler.assign(float(weight)) == Assignment(least, None)
        loads_s[least] += weight
        given_to[least] += 1


@pytest.mark.parametrize("cost_s", [0.0, 0.1, 1.0])
def test_records_of_one_cost_are_spread_as_round_robin_does(cost_s: float) -> None:
    assigned = assign_all(scheduling(5), [cost_s] * 1003)
    assert assigned == [row % 5 for row in range(1003)]


def test_an_instance_of_half_the_speed_gets_half_the_records() -> None:
    scheduler = scheduling(3)
    scheduler.accept_estimates(1, ItsOwnCost(), pace=2.0)
    assert Counter(assign_all(scheduler, [1.0] * 1000)) == {0: 400, 1: 200, 2: 400}


@pytest.mark.parametrize("pace", [0.0, -1.0, math.nan, math.inf])
def test_a_pace_that_is_no_positive_number_is_refused(pace: float) -> None:
    with pytest.raises(InvalidInputError, match="pace: must be a positive number"):
        scheduling(2).accept_estimates(0, ItsOwnCost(), pace=pace)


@pytest.mark.parametrize("field", ["instances", "window"])
def test_a_scheduler_without_instances_or_window_is_refused(field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{field}: must be at least 1"):
        GreedyScheduler[float](**{"instances": 1, field: 0})


def test_an_instance_that_joins_is_as_loaded_as_the_least_loaded_one() -> None:
    scheduler = running(2)
    assign_all(scheduler, [50.0, 20.0])
    joined = scheduler.add_instance()
    assert scheduler.instances == (0, 1, joined)
    assert scheduler.loads_s == {0: 51.0, 1: 21.0, joined: 21.0}
    assigned = Counter(assign_all(scheduler, [1.0] * 33))
    assert assigned == {0: 1, 1: 16, joined: 16}, "it is not flooded"


def test_an_instance_that_joins_answers_for_the_time_since_it_joined() -> None:
    scheduler = running(2)
    assign_all(scheduler, [50.0, 50.0])
    joined = scheduler.add_instance()
    markers = send_markers(scheduler, 2.0)
    assert markers[-1] == Marker(joined, scheduler.epoch, 2.0)
    answer_all(scheduler, markers)
    assert scheduler.loads_s == {0: 53.0, 1: 53.0, joined: 53.0}


def test_an_instance_that_joins_costs_what_the_least_loaded_does_until_it_sends_estimates() -> None:
    scheduler = scheduling(2)
    scheduler.accept_estimates(1, Constant(3.0))
    answer_all(scheduler, send_markers(scheduler, 9.0))
    joined = scheduler.add_instance()
    send_markers(scheduler, 9.0)
    assert scheduler.loads_s == {0: 18.0, 1: 6.0, joined: 6.0}
    scheduler.accept_estimates(joined, Constant(5.0))
    send_markers(scheduler, 9.0)
    assert scheduler.loads_s == {0: 27.0, 1: 9.0, joined: 11.0}


def test_an_instance_that_joins_at_the_beginning_is_waited_for_as_well() -> None:
    scheduler = GreedyScheduler[float](1)
    assign_all(scheduler, [1.0] * 3)
    joined = scheduler.add_instance()
    assert Counter(assign_all(scheduler, [1.0] * 10)) == {0: 5, joined: 5}
    scheduler.accept_estimates(0, ItsOwnCost())
    assert phase_of(scheduler) is Phase.ROUND_ROBIN
    scheduler.accept_estimates(joined, ItsOwnCost())
    assert phase_of(scheduler) is Phase.SEND_ALL


@pytest.mark.parametrize("phase", [Phase.SEND_ALL, Phase.WAIT_ALL, Phase.RUN])
def test_an_instance_that_left_is_given_nothing_and_nobody_waits_for_it(phase: Phase) -> None:
    scheduler = in_phase(phase)
    scheduler.remove_instance(0)
    assert assign_all(scheduler, [1.0] * 5) == [1] * 5
    assert scheduler.accept_answer(Answer(1, scheduler.epoch, 0.0))
    assert phase_of(scheduler) is Phase.RUN


def test_what_an_instance_that_left_still_sends_is_dropped() -> None:
    scheduler = running(2)
    scheduler.remove_instance(0)
    send_markers(scheduler)
    assert not scheduler.accept_estimates(0, Constant(9.0))
    assert not scheduler.accept_answer(Answer(0, scheduler.epoch, 9.0))
    assert phase_of(scheduler) is Phase.WAIT_ALL


def test_numbers_of_instances_are_not_used_again() -> None:
    scheduler = scheduling(2)
    scheduler.remove_instance(1)
    assert scheduler.add_instance() == 2


def test_the_estimates_that_were_still_missing_may_leave_with_their_instance() -> None:
    scheduler = GreedyScheduler[float](2)
    scheduler.accept_estimates(0, ItsOwnCost())
    scheduler.remove_instance(1)
    assert phase_of(scheduler) is Phase.SEND_ALL


def test_neither_the_last_instance_nor_an_unknown_one_can_leave() -> None:
    scheduler = scheduling(1)
    with pytest.raises(InvalidInputError, match="instance: 0 is the last one"):
        scheduler.remove_instance(0)
    with pytest.raises(InvalidInputError, match="instance: there is no 3"):
        scheduler.remove_instance(3)


@settings(max_examples=60)
@given(st.lists(st.sampled_from("aaaaeejlr"), max_size=80), st.randoms(use_true_random=False))
def test_whatever_happens_every_record_goes_to_an_instance_that_is_there(
    events: list[str], chance: random.Random
) -> None:
    scheduler = GreedyScheduler[float](2, window=3)
    sent: list[Marker] = []
    epoch = 0
    for event in events:
        instance = chance.choice(scheduler.instances)
        match event:
            case "a":
                assignment = scheduler.assign(chance.random())
                assert assignment.instance in scheduler.instances
                if assignment.marker:
                    assert assignment.marker.epoch == scheduler.epoch
                    sent.append(assignment.marker)
            case "e":
                scheduler.accept_estimates(instance, ItsOwnCost())
            case "j":
                scheduler.add_instance()
            case "l" if len(scheduler.instances) > 1:
                scheduler.remove_instance(instance)
            case "r" if sent:
                marker = sent.pop(chance.randrange(len(sent)))
                used = scheduler.accept_answer(Answer(marker.instance, marker.epoch, 1.0))
                assert marker.epoch == scheduler.epoch or not used
        assert scheduler.epoch >= epoch
        epoch = scheduler.epoch
        assert tuple(scheduler.loads_s) == scheduler.instances
