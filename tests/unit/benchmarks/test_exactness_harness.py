"""The exactness harness can fail: it sees a lost, a doubled and a changed row, and an idle run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "exactness"))

import answers
import inputs
import kinds
import outcomes
from comparison import check_timers, find_difference, summarize, summarize_reassignments
from schedules import STEPS, draw_schedule

from balancedstream.core.keys.epochs import HANDOFF_STRATEGIES

PARTITIONS = 4
OUTPUT = {0: ['{"key":1}', '{"key":2}'], 1: ['{"key":1}', '{"key":1}']}
STATE = ["{} {'key': '1'}", "{} {'key': '2'}"]


def write_run(folder: Path, output: dict[int, list[str]], state: list[str]) -> Path:
    """Leaves a run of the kind `aggregation` as a driver would."""
    batches = folder / "aggregation" / "batches"
    batches.mkdir(parents=True)
    for number, rows in output.items():
        lines = [f"{1000 + number} {row}\n" for row in rows]
        (batches / f"{number:06}.jsonl").write_text("".join(lines))
    (folder / "aggregation" / "state.txt").write_text("".join(f"{row}\n" for row in state))
    return folder


def describe_timer(event: str, number: int, *, due_ms: int, batch_ms: int) -> dict[str, Any]:
    return {
        "key": 12,
        "event": event,
        "round": number,
        "due_ms": due_ms,
        "batch_ms": batch_ms,
        "seen_ms": batch_ms + 5,
    }


SET = [
    describe_timer("set", 1, due_ms=100, batch_ms=50),
    describe_timer("set", 2, due_ms=200, batch_ms=110),
]
FIRED = [
    describe_timer("fired", 1, due_ms=100, batch_ms=110),
    describe_timer("fired", 2, due_ms=200, batch_ms=200),
]


def test_runs_with_the_same_rows_in_another_order_are_equal(tmp_path: Path) -> None:
    expected = write_run(tmp_path / "expected", OUTPUT, STATE)
    turned = {number: rows[::-1] for number, rows in OUTPUT.items()}
    found = write_run(tmp_path / "found", turned, STATE[::-1])
    assert answers.compare("aggregation", expected, found) is None


@pytest.mark.parametrize(
    ("output", "state", "part"),
    [
        ({**OUTPUT, 1: ['{"key":1}']}, STATE, "output of aggregation: of 4 rows 1 missing"),
        ({**OUTPUT, 0: [*OUTPUT[0], '{"key":2}']}, STATE, "1 too many"),
        ({**OUTPUT, 0: ['{"key":1}', '{"key":3}']}, STATE, "1 missing"),
        ({0: [*OUTPUT[0], '{"key":1}'], 1: ['{"key":1}']}, STATE, "1 too many, such as 0 "),
        ({**OUTPUT, 2: ['{"key":1}']}, STATE, "1 too many, such as 2 "),
        (OUTPUT, STATE[:1], "state of aggregation: of 2 rows 1 missing"),
        (OUTPUT, [*STATE, STATE[0]], "state of aggregation: of 2 rows 1 too many"),
    ],
    ids=[
        "a lost row",
        "a doubled row",
        "a changed row",
        "a row in another batch",
        "a batch too many",
        "lost state",
        "doubled state",
    ],
)
def test_a_run_differs_by(
    output: dict[int, list[str]], state: list[str], part: str, tmp_path: Path
) -> None:
    expected = write_run(tmp_path / "expected", OUTPUT, STATE)
    found = write_run(tmp_path / "found", output, state)
    difference = answers.compare("aggregation", expected, found)
    assert difference is not None
    assert part in difference


def test_an_undisturbed_run_without_output_or_state_proves_nothing(tmp_path: Path) -> None:
    full = write_run(tmp_path / "full", OUTPUT, STATE)
    assert answers.find_emptiness("aggregation", full) is None
    silent = write_run(tmp_path / "silent", {0: []}, STATE)
    assert "no output" in str(answers.find_emptiness("aggregation", silent))
    stateless = write_run(tmp_path / "stateless", OUTPUT, [])
    assert "no state" in str(answers.find_emptiness("aggregation", stateless))


def test_nothing_is_a_multiset_too() -> None:
    assert find_difference([], []) is None


def test_timers_that_fire_once_and_in_time_are_right() -> None:
    assert check_timers([*SET, *FIRED], [12], rounds=2) is None


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([*SET, FIRED[0]], "timer 2 of key 12 was set once and fired 0 times"),
        ([*SET, *FIRED, FIRED[0]], "timer 1 of key 12 was set once and fired 2 times"),
        (FIRED, "timer 1 of key 12 was set 0 times"),
        ([*SET, SET[1], *FIRED], "timer 2 of key 12 was set 2 times"),
        (
            [*SET, FIRED[0], FIRED[1] | {"batch_ms": 193}],
            "timer 2 of key 12 fired 7 ms early",
        ),
        ([*SET, FIRED[0] | {"due_ms": 99}, FIRED[1]], "fired for another time"),
    ],
    ids=["never", "twice", "unasked", "set twice", "early", "at another time"],
)
def test_a_timer_is_at_fault_when_it_fires(rows: list[dict[str, Any]], fault: str) -> None:
    assert fault in str(check_timers(rows, [12], rounds=2))


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    assert draw_schedule("join", 3, PARTITIONS) == draw_schedule("join", 3, PARTITIONS)
    assert draw_schedule("join", 3, PARTITIONS) != draw_schedule("join", 4, PARTITIONS)
    assert draw_schedule("join", 3, PARTITIONS) != draw_schedule("aggregation", 3, PARTITIONS)


@pytest.mark.parametrize("kind", sorted(kinds.KINDS.keys() - kinds.NEXMARK))
def test_twenty_schedules_hold_every_disturbance_several_times(kind: str) -> None:
    times: Counter[str] = Counter()
    for seed in range(20):
        actions = draw_schedule(kind, seed, PARTITIONS)
        batches = [action.after_batch for action in actions]
        assert batches == sorted(batches)
        assert batches[-1] < inputs.FILES - 1
        whats = {action.what for action in actions}
        assert "move" in whats
        times.update(whats)
    assert min(times[what] for what in ("kill-executor", "retire", "add", "kill-driver")) >= 3


def test_the_schedules_of_reassigned_keys_hold_every_strategy_step_and_preparation() -> None:
    reassigned = [kind for kind in kinds.KINDS if kind.startswith("reassigned-keys")]
    assert len(reassigned) == 6
    actions = [
        action
        for kind in reassigned
        for seed in range(10)
        for action in draw_schedule(kind, seed, PARTITIONS, inputs.KEYS)
    ]
    wanted = [action for action in actions if action.what == "reassign"]
    assert {action.strategy for action in wanted} == {*HANDOFF_STRATEGIES}
    assert {action.ahead for action in wanted} == {0, 1, 2}
    assert sum(1 for action in wanted if not action.keys) >= 10
    killed = Counter(action.step for action in actions if action.what == "kill-driver")
    assert killed.keys() == {*STEPS}
    assert min(killed.values()) >= 3


def test_a_move_has_settled_once_the_partition_ran_where_it_was_wanted() -> None:
    def batch(*ran_on: tuple[int, str], state: str = "loaded") -> dict[str, Any]:
        where = [[0, partition, executor] for partition, executor in ran_on]
        reports = [[0, 0, state, ""]]
        return {
            "what": "batch",
            "query": "q",
            "handoffs": 0,
            "ran_on": where,
            "preparations": reports,
        }

    def move(*targets: tuple[int, str]) -> dict[str, Any]:
        return {"what": "move", "query": "q", "operator": 0, "targets": targets}

    counts = summarize(
        [
            batch((0, "a"), (1, "a")),
            move((0, "b"), (1, "a")),  # partition 1 is there already: no move
            batch((0, "a"), (1, "a")),
            batch((0, "b"), (1, "a"), state="due"),
            batch((0, "b"), (1, "a")),
            move((1, "b")),
            move((1, "c")),  # wanted elsewhere before it came true
            batch((0, "b"), (1, "b")),
        ]
    )
    assert (counts["moves"], counts["settled"], counts["batches"]) == (3, 1, 5)
    assert counts["prepared"] == 1


def test_an_outcome_says_how_keys_were_wanted_elsewhere_and_where_the_driver_died() -> None:
    def reassign(keys: int, strategy: str, ahead: int) -> dict[str, Any]:
        return {"what": "reassign", "keys": keys, "strategy": strategy, "ahead": ahead}

    killed = {"what": "kill-driver", "last_batch": {"q": 3}, "step": "switch-planned"}
    wanted = [reassign(2, "lazy", 1), reassign(4, "eager", 0), reassign(1, "lazy", 0)]
    assert summarize_reassignments([*wanted, reassign(0, "hybrid", 2), killed]) == {
        "reassignments": {"lazy": 2, "eager": 1},
        "withdrawn": 1,
        "prepared_ahead": 2,
        "steps_killed": ["switch-planned"],
    }


def test_files_that_a_restart_took_together_are_written_as_one(tmp_path: Path) -> None:
    inputs.write_table(tmp_path / "whole", "orders")
    inputs.write_table(tmp_path / "merged", "orders", [0, 2, 3, 4, 5, 6, 7])
    whole = sorted((tmp_path / "whole").iterdir())
    merged = sorted((tmp_path / "merged").iterdir())
    assert len(merged) == len(whole) - 1
    assert merged[1].read_text() == whole[1].read_text() + whole[2].read_text()
    assert [p.stat().st_mtime for p in merged] == sorted(p.stat().st_mtime for p in merged)


def test_the_input_has_late_and_repeated_rows_and_skewed_keys() -> None:
    files: Any = inputs.draw_rows("orders")
    rows = [json.dumps(row) for file in files for row in file]
    assert len(set(rows)) < 0.9 * len(rows)
    keys = Counter(row["key"] for file in files for row in file)
    assert max(keys.values()) > 5 * len(rows) / inputs.KEYS
    assert any(row["at"] < files[3][0]["at"] for row in files[5])


def test_the_batches_of_a_run_are_read_from_its_offset_logs(tmp_path: Path) -> None:
    logs = tmp_path / "join" / "checkpoint" / "offsets"
    logs.mkdir(parents=True)
    offsets = [(0, 0), (2, 1), (2, 2)]
    for batch, (orders, payments) in enumerate(offsets):
        lines = ["v1", "{}", json.dumps({"logOffset": orders}), json.dumps({"logOffset": payments})]
        (logs / str(batch)).write_text("\n".join(lines))
    assert answers.read_cuts("join", tmp_path) == {
        "join": {"orders": [0, 2], "payments": [0, 1, 2]}
    }


@pytest.mark.parametrize(
    ("changed", "marked"),
    [
        ("runtime/balancedstream/keyed/source.py", True),
        ("runtime/balancedstream/core/keys/epochs.py", True),
        ("runtime/balancedstream/loop/reassigning.py", True),
        ("benchmarks/exactness/run.py", True),
        ("benchmarks/nexmark/events.py", True),
        ("docs/exactness.md", False),
    ],
)
def test_an_outcome_names_its_commit_and_says_whether_the_code_under_test_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, marked: bool
) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        subprocess.run(command, check=True)

    file = tmp_path / changed
    file.parent.mkdir(parents=True)
    file.write_text("before")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=first")
    monkeypatch.setattr(outcomes, "REPOSITORY", tmp_path)
    assert not outcomes.read_commit().endswith("-dirty")
    file.write_text("after")
    assert outcomes.read_commit().endswith("-dirty") is marked
