"""The examples on small input: what each stream leaves equals a recomputation without Spark."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pages import read_blocks, read_commands
from processes import SETTINGS, write_submit_arguments
from simulated_runs import Scenario, Simulation, new_history

from balancedstream.report import render_json, summarize

EXAMPLES = Path(__file__).parents[2] / "examples"
FLIGHTS, WORDS, TEXTS = (EXAMPLES / n for n in ("01-flights", "02-hot-keys", "03-texts"))
DAYS = "5"  # into a week-end: some stations fall silent
AS_A_WRAPPER_RUNS_IT = (
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)

pytestmark = [pytest.mark.integration, pytest.mark.turn]


def run(
    *command: str | Path, master: str | None = "local[2]", partitions: int = 4
) -> subprocess.CompletedProcess[str]:
    """Run a command in a fresh Python that finds its master where a user puts it."""
    settings = SETTINGS | {"spark.sql.shuffle.partitions": str(partitions)}
    if master:
        settings["spark.master"] = master
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": write_submit_arguments(settings),
    }
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def succeeds(*command: str | Path, **where: Any) -> str:
    finished = run(*command, **where)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_flights_results_equal_a_batch_recomputation_across_a_crash_between_sink_and_commit(
    tmp_path: Path,
) -> None:
    everything, so_far, output = tmp_path / "everything", tmp_path / "so-far", tmp_path / "output"
    app = FLIGHTS / "app.py"
    check = (FLIGHTS / "check.py", output, "--days", DAYS)
    succeeds(FLIGHTS / "replay.py", everything, "--files", "3", "--days", DAYS)
    so_far.mkdir()
    *first, last = sorted(everything.iterdir())
    for path in first:
        shutil.copy2(path, so_far)  # with its modification time, the source's order

    succeeds("-c", AS_A_WRAPPER_RUNS_IT, app, so_far, output)
    half_way = run(*check)
    assert half_way.returncode == 1
    assert half_way.stdout.startswith("DIFFERENT")

    for query in ("stations", "hours"):
        commits = sorted((output / "checkpoints" / query / "commits").glob("[0-9]*"), key=by_number)
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
        sorted((output / query).glob("batch-*"))[-1].write_text('{"half": "a batch"}\n')
    shutil.copy2(last, so_far)
    succeeds(app, so_far, output)
    assert succeeds(*check).startswith("EQUAL")

    a_batch = output / "hours" / "batch-000001.jsonl"
    a_batch.write_text(a_batch.read_text().replace('"flights":', '"flights":1', 1))
    changed = run(*check)
    assert changed.returncode == 1
    assert "1 are missing and 1 are unexpected" in changed.stdout


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (Scenario(), r"The median batch takes \d+% less time\."),
        (Scenario(first_balance=3), r"before the first move \(3, at least 5 are needed\)"),
        (Scenario(balance=False), r"Nothing had to move: .* by chance \(\d\.\d\d\)"),
    ],
)
def test_the_flights_demo_ends_with_a_percentage_or_with_why_there_is_none(
    scenario: Scenario, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    history = new_history()
    Simulation(scenario, history).run()
    report = json.loads(render_json(summarize(history)))
    load(FLIGHTS / "demo.py").print_gain(report, correct=False)
    screen = capsys.readouterr().out
    assert re.search(said, screen), screen
    assert ("% less time" in screen) is (scenario == Scenario())
    assert re.search(rf"batches measured +{report['queries'][0]['batches_before']} ", screen)
    assert re.search(r"results equal to the recomputation +NO", screen)


def test_the_page_of_the_flights_shows_what_the_programs_print(tmp_path: Path) -> None:
    shown = {
        command.words[1].rpartition("/")[2]: command
        for block in read_blocks(FLIGHTS / "README.md")
        if block.is_shell
        for command in read_commands(block.text)
        if command.words[0] == "python"
    }
    folder, *how = shown["replay.py"].words[2:]
    said = succeeds(FLIGHTS / "replay.py", tmp_path / "flights", *how)
    assert said.replace(str(tmp_path / "flights"), folder) == shown["replay.py"].output
    check = load(FLIGHTS / "check.py", beside=True)
    frame = check.read_flights()
    frame = frame.assign(scheduled=check.scheduled_departures(frame))
    expected = (check.expected_stations, check.expected_silences, check.expected_hours)
    recomputed = check.describe_equal(frame, *(expect(frame) for expect in expected))
    assert f"{recomputed}\n" == shown["check.py"].output


def by_number(path: Path) -> int:
    return int(path.name)


def test_words_have_the_same_results_wherever_keys_go(tmp_path: Path) -> None:
    words, output, policy = tmp_path / "words", tmp_path / "output", tmp_path / "policy.yaml"
    succeeds(WORDS / "collect.py", words, "--files", "6", "--words", "12000")
    # Any words that two partitions can exchange: which ones are hot depends on the installation.
    policy.write_text("balance: {act_above: 1.0}\nwindow: {batches: 1}\n")
    how = ("--local", "2", "--policy", policy, "--report", tmp_path)
    app = (WORDS / "app.py", words, output)
    succeeds("-m", "balancedstream.cli", "run", *how, *app, master=None, partitions=2)
    assert succeeds(WORDS / "check.py", words, output).startswith("EQUAL")
    moves = read_records(tmp_path / "history.jsonl", "key_move")
    assert [move for move in moves if move["settled_batch"] is not None], moves

    *_, a_batch = (file for file in sorted((output / "words").iterdir()) if file.stat().st_size)
    a_batch.write_text(a_batch.read_text().replace('"uses":', '"uses":1', 1))
    changed = run(WORDS / "check.py", words, output)
    assert changed.returncode == 1
    assert "1 are missing and 1 are unexpected" in changed.stdout


def test_texts_are_each_described_once_as_without_spark(tmp_path: Path) -> None:
    texts, output = tmp_path / "texts", tmp_path / "output"
    succeeds(TEXTS / "collect.py", texts, "--files", "4", "--texts", "40")
    succeeds(TEXTS / "app.py", texts, output, "--shuffle", "by-cost", "round-robin")
    described = read_lines(output / "by-cost" / "results")
    assert described == read_lines(output / "round-robin" / "results")
    given = read_lines(texts)
    app = load(TEXTS / "app.py")
    columns = [column.split()[0] for column in app.RESULT_SCHEMA.split(",")]
    expected = [
        dict(zip(columns, (each["name"], *app.describe(each["text"])), strict=True))
        for each in given
    ]
    assert len(given) == 160
    assert described == expected


def load(script: Path, *, beside: bool = False) -> ModuleType:
    """The script as a module; it is not run. It may import what is beside it."""
    if beside:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", [str(script.parent), *sys.path])
            return load(script)
    spec = importlib.util.spec_from_file_location(f"{script.parent.name}-{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_records(history: Path, kind: str) -> list[dict[str, Any]]:
    records = map(json.loads, history.read_text().splitlines())
    return [record for record in records if record["record"] == kind]


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """All rows of a folder's files, by name."""
    texts = [file.read_text("utf-8") for file in folder.glob("*.json")]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    return sorted(rows, key=lambda row: row["name"])
