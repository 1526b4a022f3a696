"""The Python of each page runs, in the order of the page; streams that it defines answer."""

from __future__ import annotations

import ast
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import indent
from threading import Thread
from typing import Any

import pandas as pd
import pytest
from pages import PAGES, ROOT, Block, read_blocks
from patience import PATIENCE_S
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from simulated_runs import Scenario, Simulation, new_history

from balancedstream.report import write_report

pytestmark = pytest.mark.integration

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PYTHON = {
    str(page.relative_to(ROOT)): [b for b in read_blocks(page) if b.language == "python"]
    for page in PAGES
}
USERS = ("ann", "bob", "ann", "cid", "ann", "bob")
POSTS = ("a text", "ein Text", "a text", "a text", "un texte", "ein Text")
TEXTS = ("a text", "ein Text", "un texte", "a text", "another", "noch einer")


class Sessions(StatefulProcessor):
    """Counts the rows of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "clicks long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        count = (self._count.get()[0] if self._count.exists() else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(user_id=key[0], clicks=count)

    def close(self) -> None:
        pass


def classify_texts(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for part in parts:
        yield pd.DataFrame({"id": part["id"], "label": part["text"].str.upper()})


def classify_text(text: str) -> str:
    return text.split(maxsplit=1)[0]


Answers = Sequence[dict[str, Any]]
Given = dict[str, Any]


def give_clicks(read: Callable[[str, list[dict[str, Any]]], DataFrame]) -> Given:
    rows = [{"user_id": u, "eventTime": f"2026-01-01T00:00:0{n}Z"} for n, u in enumerate(USERS)]
    clicks = read("user_id string, eventTime timestamp", rows).withWatermark("eventTime", "1 hour")
    return {"clicks": clicks, "Sessions": Sessions, "schema": "user_id string, clicks long"}


def give_texts(read: Callable[[str, list[dict[str, Any]]], DataFrame]) -> Given:
    rows = [{"id": n, "language": t[0], "text": t} for n, t in enumerate(TEXTS)]
    texts = read("id long, language string, text string", rows)
    return {"texts": texts, "classify": classify_texts}


def give_posts(read: Callable[[str, list[dict[str, Any]]], DataFrame]) -> Given:
    rows = [{"user_id": u, "text": t} for u, t in zip(USERS, POSTS, strict=True)]
    return {"posts": read("user_id string, text string", rows), "classify": classify_text}


GIVEN: dict[str, tuple[Callable[..., Given], ...]] = {
    "README.md": (give_clicks, give_texts),
    "docs/key-assignment.md": (give_clicks, give_posts),
    "docs/shuffle.md": (give_texts,),
}
"""What the snippets of a page go on from: one function for each, or for all."""

EXPECTED: dict[str, list[Answers]] = {
    "README.md": [
        [{"clicks": 1, "user_id": "cid"}, {"clicks": 2, "user_id": "bob"}],
        [{"id": 0, "label": "A TEXT"}, {"id": 5, "label": "NOCH EINER"}],
    ],
    "docs/key-assignment.md": [
        [{"clicks": 3, "user_id": "ann"}],
        [
            {"posts": 3, "topic": "a", "user_id": "ann"},
            {"posts": 2, "topic": "ein", "user_id": "bob"},
        ],
    ],
    "docs/shuffle.md": [[{"id": 2, "label": "UN TEXTE"}]],
}
"""Rows among the answers of each stream that the snippets of a page define."""


@pytest.fixture
def read(spark: SparkSession, tmp_path: Path) -> Callable[[str, list[dict[str, Any]]], DataFrame]:
    """A stream of these rows, in two files."""

    def build(schema: str, rows: list[dict[str, Any]]) -> DataFrame:
        folder = tmp_path / f"input-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for number, part in enumerate((rows[:3], rows[3:])):
            lines = "".join(json.dumps(row) + "\n" for row in part)
            (folder / f"{number}.json").write_text(lines)
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))

    return build


@pytest.fixture(autouse=True)
def checkpoints(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    name = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(name, str(tmp_path / "checkpoints"))
    yield
    spark.conf.unset(name)


def run_snippet(block: Block, names: dict[str, Any]) -> DataFrame | None:
    """Runs a block; the stream that its last statement defines."""
    tree = ast.parse(block.text)
    *_, last = tree.body
    value: object = None
    if isinstance(last, ast.Expr):
        tree.body.remove(last)
    exec(compile(tree, str(block), "exec"), names)  # noqa: S102
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), str(block), "eval"), names)  # noqa: S307
    elif isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name):
        value = names[last.targets[0].id]
    return value if isinstance(value, DataFrame) and value.isStreaming else None


def answer(stream: DataFrame, name: str) -> list[dict[str, Any]]:
    """All rows that a stream writes until its input is used up."""
    rows: list[dict[str, Any]] = []
    writer = stream.writeStream.queryName(name).outputMode("update").trigger(availableNow=True)
    query = writer.foreachBatch(
        lambda batch, _: rows.extend(row.asDict() for row in batch.collect())
    ).start()
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    return rows


@pytest.mark.parametrize("page", GIVEN)
def test_the_streams_of_a_page_run_and_answer(
    page: str, spark: SparkSession, read: Callable[[str, list[dict[str, Any]]], DataFrame]
) -> None:
    # As in a module that executors cannot import: what it defines travels with its code.
    names: dict[str, Any] = {"spark": spark, "__name__": "snippets"}
    answers = []
    for number, block in enumerate(PYTHON[page]):
        names |= GIVEN[page][min(number, len(GIVEN[page]) - 1)](read)
        stream = run_snippet(block, names)
        if stream is not None:
            answers.append(answer(stream, f"snippet-{number}"))
    assert len(answers) == len(EXPECTED[page])
    for found, expected in zip(answers, EXPECTED[page], strict=True):
        assert [row for row in expected if row not in found] == []


def test_balancing_from_python_as_the_page_shows_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = PYTHON["docs/from-python.md"]
    names: dict[str, Any] = {"spark": spark, "__name__": "snippets"}
    try:
        run_snippet(block, names)
    finally:
        names["metrics"].close()
    assert names["attachment"].problems == ()
    assert (tmp_path / "report" / "report.html").stat().st_size > 1000


def test_a_report_is_made_again_as_the_page_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    history = new_history()
    Simulation(Scenario(), history).run()
    (tmp_path / "run").mkdir()
    write_report(history, tmp_path / "run")
    (block,) = PYTHON["docs/reference/report.md"]
    run_snippet(block, {"__name__": "snippets"})
    made = [(tmp_path / where / "report.json").read_text() for where in ("run", "again")]
    assert made[0] == made[1]


def test_the_job_of_the_page_runs_as_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    block, from_kafka = PYTHON["docs/your-job.md"]
    # The demo's job reads so from Kafka, and the tests on a cluster run it.
    job = (ROOT / "tests" / "e2e" / "apps" / "counts.py").read_text("utf-8")
    assert indent(from_kafka.text, "    ") in job

    visits = tmp_path / "input" / "visits"
    visits.mkdir(parents=True)
    (visits / "0.json").write_text('{"user_id": "ann", "at": "2026-01-01T00:00:00Z"}\n' * 3)
    # Relative paths are below the driver's working folder, which is that of the test's session.
    given = block.text.replace('"input/visits"', repr(str(visits))).replace(
        '"output/', f'"{tmp_path}/output/'
    )
    text = given.replace('"checkpoints/hourly"', repr(str(tmp_path / "checkpoints" / "own")))
    names: dict[str, Any] = {"__name__": "snippets"}
    thread = Thread(target=lambda: exec(compile(text, str(block), "exec"), names))  # noqa: S102
    thread.start()
    deadline_s = time.monotonic() + PATIENCE_S
    while "query" not in names and thread.is_alive() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    names["query"].processAllAvailable()
    names["query"].stop()
    thread.join()
    counted = [row for f in (tmp_path / "output").rglob("*.json") for row in f.read_text().split()]
    assert [json.loads(row)["count"] for row in counted] == [3]


def test_the_snippets_of_every_page_are_run() -> None:
    others = {"docs/from-python.md", "docs/reference/report.md", "docs/your-job.md"}
    assert {page for page, blocks in PYTHON.items() if blocks} == {*GIVEN, *others}
