"""What the engine makes of the stages of a batch, and of the time in which none ran."""

from __future__ import annotations

from balancedstream.core.samples import TaskSample
from balancedstream.engine.measuring.stages import StageRow, sum_driver_times, sum_stages

SOURCE = StageRow("source", 2, 900, 1000, 2000, {"a": 900, "b": 700})
STATEFUL = StageRow("stateful", 4, 600, 2100, 3000, {"a": 1000, "b": 800})
SINK = StageRow("sink", 3, 100, 3000, 3200, {"b": 250})


def task(partition: int, executor: str, busy_s: float, restore_s: float = 0.0) -> TaskSample:
    return TaskSample("q", 0, partition, 7, executor, busy_s, 10, 0, 3.0, restore_s)


def test_each_kind_of_stage_has_its_tasks_and_the_work_of_each_executor() -> None:
    samples = {s.kind: s for s in sum_stages("q", 7, [SINK, SOURCE, STATEFUL], [])}
    assert samples["source"].executor_busy_s == {"a": 0.9, "b": 0.7}
    assert (samples["source"].tasks, samples["source"].longest_s) == (2, 0.9)
    assert samples["sink"].executor_busy_s == {"b": 0.25}
    assert samples["stateful"].finished_s == 3.0


def test_stages_that_overlap_add_their_tasks_and_those_that_follow_do_not() -> None:
    beside = SOURCE._replace(tasks=3, first_ms=1500, last_ms=2500)
    after = SOURCE._replace(tasks=4, first_ms=2000, last_ms=2500)
    assert sum_stages("q", 7, [SOURCE, beside], [])[0].tasks == 5
    assert sum_stages("q", 7, [SOURCE, after], [])[0].tasks == 4


def test_restoring_state_is_no_work_of_a_stage() -> None:
    tasks = [task(0, "a", 0.6, restore_s=0.5), task(1, "a", 0.4), task(2, "b", 0.8)]
    stateful = sum_stages("q", 7, [STATEFUL], tasks)[0]
    assert stateful.executor_busy_s == {"a": 0.5, "b": 0.8}
    assert stateful.longest_s == 0.8


def test_what_is_no_stage_and_no_named_part_of_a_batch_is_a_gap() -> None:
    durations_ms = {
        "triggerExecution": 3000,
        "latestOffset": 50,
        "getBatch": 10,
        "queryPlanning": 200,
        "walCommit": 30,
        "commitOffsets": 40,
        "addBatch": 2600,
    }
    times = sum_driver_times(durations_ms, [SOURCE, STATEFUL, SINK])
    assert times == {
        "offsets_s": 0.06,
        "planning_s": 0.2,
        "commits_s": 0.07,
        # Of 3,000 ms the stages cover 2,100, one of them after a gap of 100.
        "gaps_s": 0.57,
    }


def test_stages_that_overlap_cover_their_time_once() -> None:
    beside = SOURCE._replace(first_ms=1200, last_ms=1800)
    assert sum_driver_times({"triggerExecution": 1500}, [SOURCE, beside])["gaps_s"] == 0.5


def test_without_any_stage_all_of_a_batch_is_the_drivers() -> None:
    times = sum_driver_times({"triggerExecution": 400, "queryPlanning": 300}, [])
    assert (times["planning_s"], times["gaps_s"]) == (0.3, 0.1)
    assert sum_stages("q", 7, [], []) == ()
