"""A log is read as Spark wrote it, up to where it ends, and nothing in it does harm."""

from __future__ import annotations

import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_logs import CODECS, LOGS, read, read_text
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.estimates.worth import judge
from balancedstream.engine import traits
from balancedstream.errors import InvalidInputError
from balancedstream.estimate import events, reading
from balancedstream.estimate.document import to_json
from balancedstream.estimate.reading import Finding
from balancedstream.estimate.text import describe

TEXT = read_text()
LINES = TEXT.splitlines()
OLDER = ("3.5",)
STORES = "number of state store instances"


def write(folder: Path, *parts: bytes) -> Path:
    """A log of one file, or one that is rolled over."""
    if len(parts) == 1:
        file = folder / "app-1"
        file.write_bytes(parts[0])
        return file
    log = folder / "eventlog_v2_app-1"
    log.mkdir()
    for number, part in enumerate(parts, 1):
        (log / f"events_{number}_app-1").write_bytes(part)
    return log


def events_of(name: str) -> Iterator[dict[str, Any]]:
    return (e for e in map(json.loads, LINES) if e["Event"].endswith(name))


def figures_of(finding: Finding) -> tuple[Any, ...]:
    (query,) = finding.application.queries.values()
    return query.batches, query.rows, query.spread, finding.application.fleet


@pytest.mark.parametrize("codec", CODECS)
def test_the_figures_are_those_of_sparks_events(codec: str) -> None:
    finding = read(LOGS / f"grown.{codec}")
    assert not finding.reading.unreadable
    assert not finding.reading.cut
    assert finding.reading.events == len(LINES)
    assert finding.ended
    assert finding.name == "grown job"
    assert finding.spark.startswith("4.")
    assert finding.application.fleet.use.used_s > 0
    (query,) = finding.application.queries.values()
    progress = [event["progress"] for event in events_of("QueryProgressEvent")]
    assert query.query == "clicks"
    assert query.batches == len(progress)
    assert query.rows == sum(p["sources"][0]["numInputRows"] for p in progress)
    assert query.partitions == {0: 6}
    counted = [p["durationMs"]["triggerExecution"] / 1000 for p in progress[1:]]
    assert query.spread.batch_s == pytest.approx(sum(counted) / len(counted))


def test_the_imbalance_is_that_of_the_tasks_with_state() -> None:
    """Recomputed from the tasks that opened a state store, on the executors of that time."""
    busy_s: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    batch_of: dict[int, int] = {}
    live: set[str] = set()
    hottest_s = mean_s = 0.0
    for event in map(json.loads, LINES):
        match event["Event"].rpartition(".")[2].rpartition("$")[2]:
            case "SparkListenerExecutorAdded":
                live.add(event["Executor ID"])
            case "SparkListenerExecutorRemoved":
                live.discard(event["Executor ID"])
            case "SparkListenerJobStart":
                batch = int(event["Properties"]["streaming.sql.batchId"])
                batch_of |= {info["Stage ID"]: batch for info in event["Stage Infos"]}
            case "SparkListenerTaskEnd":
                info, metrics = event["Task Info"], event["Task Metrics"]
                if any(told["Name"] == STORES for told in info["Accumulables"]):
                    ran_ms = metrics["Executor Run Time"] + metrics["Executor Deserialize Time"]
                    busy_s[batch_of[event["Stage ID"]]][info["Executor ID"]] += ran_ms / 1000
            case "QueryProgressEvent" if event["progress"]["batchId"] > 0:
                on = busy_s[event["progress"]["batchId"]]
                hottest_s += max(on.values())
                mean_s += sum(on.values()) / len(live)
    spread = read(LOGS / "grown.zstd").application.queries["clicks"].spread
    # No partition moved in this log, so that no restore is left out of what tasks took.
    assert spread.hottest_s == pytest.approx(hottest_s)
    assert spread.mean_s == pytest.approx(mean_s)


def test_an_executor_that_joined_and_got_no_state_is_what_balancing_would_have_used() -> None:
    finding = read(LOGS / "grown.zstd")
    fleet, spread = finding.application.fleet, finding.application.queries["clicks"].spread
    assert (fleet.fewest, fleet.most, fleet.added, fleet.removed) == (1, 2, 1, 0)
    assert spread.imbalance is not None
    assert spread.imbalance > 1.5
    assert spread.bound == pytest.approx(1.0, abs=0.1)
    assert spread.saved > 0.1
    assert judge(finding.application.queries, fleet).balancing


def test_estimates_and_the_engine_agree_on_which_spark_loads_state_ahead() -> None:
    assert reading.LOADING_AHEAD_SINCE == traits.LOADING_AHEAD_SINCE


@pytest.mark.parametrize("version", OLDER)
def test_the_log_of_an_older_spark_is_read(version: str) -> None:
    finding = read(LOGS / f"grown-{version}.zstd")
    assert finding.spark.startswith(version)
    assert not finding.reading.unreadable
    assert not finding.application.prepared, "it cannot load state ahead of a move"
    (query,) = finding.application.queries.values()
    assert query.rows == 120 * query.batches
    assert query.partitions == {0: 6}
    assert query.spread.batches == query.batches - 1
    assert query.spread.imbalance is not None
    assert query.spread.imbalance > 1.2


@pytest.mark.parametrize("at", [1, 3, 40])
def test_a_log_that_was_rolled_over_gives_the_same(at: int, tmp_path: Path) -> None:
    parts = [b"\n".join(LINES[:at]) + b"\n", b"\n".join(LINES[at:]) + b"\n"]
    assert figures_of(read(write(tmp_path, *parts))) == figures_of(read(LOGS / "grown.zstd"))


def test_what_a_log_without_an_end_has_is_used(tmp_path: Path) -> None:
    log = write(tmp_path, TEXT[: len(TEXT) * 2 // 3])
    finding = read(log)
    assert finding.reading.cut == "the last line is not whole"
    assert not finding.ended
    (query,) = finding.application.queries.values()
    assert 1 < query.batches < read(LOGS / "grown.zstd").application.queries["clicks"].batches
    assert "the log is cut off (the last line is not whole)" in describe(finding)


def test_a_log_that_begins_in_the_middle_is_read_without_the_executors_start(
    tmp_path: Path,
) -> None:
    kept = [line for line in LINES if b"SparkListenerExecutorAdded" not in line[:60]]
    finding = read(write(tmp_path, b"\n".join(kept)))
    assert len(finding.unnamed) == 2
    assert "the start of 2 executors is not in the log" in describe(finding)
    assert finding.application.queries["clicks"].spread.imbalance is not None
    assert finding.application.fleet.most == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no event, it is empty"),
        (b"\n\n", "has no event, it is empty"),
        (b"id,name\n1,a\n", "is no event log of Spark"),
        (b'{"a": 1}\n', "is no event log of Spark"),
        (b"\x00\xff\xfe" * 9, "is no event log of Spark"),
        (LINES[0], "has no streaming query"),
        (b'{"Event":"SparkListenerLogStart","Spark Version":"2.4.8"}\n', "has no streaming query"),
        (b'{"Event":"SparkListenerLogStart","Spark Version":', "has no event"),
        (b'{"Event":"x"}\n' * 9, "has no streaming query"),
        (b'{"Event":"x"}\nnonsense\n', "has no streaming query"),
    ],
)
def test_what_is_no_log_of_a_stream_is_refused_in_one_sentence(
    content: bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        read(write(tmp_path, content))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_query_without_a_finished_batch_is_said_to_have_none(tmp_path: Path) -> None:
    kept = [line for line in LINES if b"QueryProgressEvent" not in line[:120]]
    with pytest.raises(InvalidInputError, match="none of its batches has ended"):
        read(write(tmp_path, b"\n".join(kept)))


def test_a_line_that_is_too_long_is_left_out_and_never_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = max(map(len, LINES))
    monkeypatch.setattr(events, "MAX_LINE_BYTES", longest)
    long = b'{"Event":"SparkListenerTaskEnd","x":"' + b"x" * (3 * longest) + b'"}'
    finding = read(write(tmp_path, b"\n".join([*LINES[:9], long, *LINES[9:], b""])))
    assert finding.reading.unreadable == 1
    assert figures_of(finding) == figures_of(read(LOGS / "grown.zstd"))


def try_to_read(path: Path) -> None:
    """Whatever is there, it is estimated or refused."""
    try:
        finding = read(path)
    except InvalidInputError:
        return
    text, document = describe(finding), to_json([finding])
    assert all(c.isprintable() or c == "\n" for c in text)
    assert document.isascii()
    json.loads(document, parse_constant=pytest.fail)


def draw_seeded() -> random.Random:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.mark.parametrize("codec", [*CODECS, "plain"])
def test_a_log_that_is_cut_anywhere_is_estimated_or_refused(codec: str, tmp_path: Path) -> None:
    data = TEXT if codec == "plain" else (LOGS / f"grown.{codec}").read_bytes()
    draw = draw_seeded()
    sizes = [*range(24), *(draw.randrange(len(data)) for _ in range(20)), len(data) - 1]
    for size in sizes:
        try_to_read(write(tmp_path, data[:size]))


@pytest.mark.parametrize("codec", [*CODECS, "plain"])
def test_a_log_with_bytes_that_flipped_is_estimated_or_refused(codec: str, tmp_path: Path) -> None:
    data = TEXT if codec == "plain" else (LOGS / f"grown.{codec}").read_bytes()
    draw = draw_seeded()
    for number in range(30):
        changed = bytearray(data)
        for _ in range(draw.choice((1, 1, 5, 200))):
            # The header of a file takes part in a third of the rounds.
            changed[draw.randrange(64 if number % 3 == 0 else len(data))] = draw.randrange(256)
        try_to_read(write(tmp_path, bytes(changed)))


NAMES = sorted({json.loads(line)["Event"] for line in LINES})
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from((10**17, -1, 10**400, 2**63)),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(("\x1b[2J", "9" * 30, "١٢")),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def list_places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = enumerate(value) if isinstance(value, list) else value.items()
    for key, each in items:
        yield (*here, key)
        if isinstance(each, dict | list):
            yield from list_places(each, (*here, key))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_of_any_event_may_be_odd(data: st.DataObject) -> None:
    """Each event in turn is changed where chance wants; the others stay as Spark wrote them."""
    number = data.draw(st.integers(0, len(LINES) - 1))
    event = json.loads(LINES[number])
    places = [p for p in list_places(event) if p != ("Event",)]
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(places))
        parent = event
        try:
            for key in way:
                parent = parent[key]
            if data.draw(st.booleans()):
                parent[last] = data.draw(ODD)
            else:
                del parent[last]
        except (LookupError, TypeError):
            continue  # something above it was changed before
    lines = [*LINES[:number], json.dumps(event).encode(), *LINES[number + 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        try_to_read(write(Path(folder), b"\n".join(lines)))


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.dictionaries(st.text(), ODD)), max_size=5))
def test_events_of_other_shapes_are_refused(told: list[tuple[str, dict[str, Any]]]) -> None:
    lines = [json.dumps({"Event": name, **rest}).encode() for name, rest in told]
    with tempfile.TemporaryDirectory() as folder, pytest.raises(InvalidInputError):
        read(write(Path(folder), b"\n".join(lines)))


def test_hostile_names_reach_neither_terminal_nor_json(tmp_path: Path) -> None:
    hostile = "\x1b[2J\u202eevil\r\n\x9b31m"
    names = (b'"clicks"', b'"grown job"', b'"4.3.0"', b'"RatePerMicroBatchStream')
    text = TEXT
    for name in names:
        assert name in text
        text = text.replace(name, name[:1] + json.dumps(hostile)[1:-1].encode() + name[1:])
    finding = read(write(tmp_path, text))
    said = describe(finding)
    assert "evil" in said
    assert all(c.isprintable() or c == "\n" for c in said)
    document = to_json([finding])
    assert all(c.isprintable() or c == "\n" for c in document)
    (application,) = json.loads(document)["applications"]
    assert application["name"] == f"{hostile}grown job"
    assert application["queries"][0]["query"] == f"{hostile}clicks"


def test_a_query_in_real_time_mode_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    real_time = TEXT.replace(b'"MicroBatchScan"', b'"RealTimeStreamScan"')
    with pytest.raises(InvalidInputError, match=r"all queries in .* run in Real-Time Mode"):
        read(write(tmp_path, real_time))
    finding = read(LOGS / "grown.zstd")
    finding.real_time.add("live")
    assert "note: query live runs in Real-Time Mode and is left out" in describe(finding)


def test_a_log_that_begins_in_the_middle_is_read_whatever_job_group_the_user_has_set(
    tmp_path: Path,
) -> None:
    def regroup(line: bytes) -> bytes:
        event = json.loads(line)
        if event["Event"].endswith("JobStart"):
            event["Properties"]["spark.jobGroup.id"] = "etl"
        return json.dumps(event).encode()

    kept = [line for line in LINES if b"QueryStartedEvent" not in line[:120]]
    grouped = read(write(tmp_path, b"\n".join(map(regroup, kept))))
    assert figures_of(grouped) == figures_of(read(LOGS / f"grown.{CODECS[0]}"))
