"""NEXMark's events are as its definition says and the same for a seed, and its harness can fail."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from nexmark.answers import ANSWERS, answer
from nexmark.events import (
    ACTIVE_AUCTIONS,
    AUCTION_BYTES,
    BID_BYTES,
    CLOSES_AT,
    FIRST_ID,
    HOT_EVERY,
    LEAD,
    PERSON_BYTES,
    TABLES,
    Event,
    Row,
    Workload,
    draw_closing,
    draw_events,
)
from nexmark.files import divide, write_files
from nexmark.queries import QUERIES
from nexmark.streams import WATERMARK_DELAY
from nexmark_on_off import summarize_batches

from balancedstream.core.samples import BatchSample

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "exactness"))

import answers
import inputs
import kinds

EVENTS = 50_000
DRAWN = list(draw_events(Workload(EVENTS), seed=1))
NEAR = 0.02
"""How far a share among thousands of rows may be from its probability."""


def rows_of(table: str, events: list[Event] = DRAWN) -> list[Row]:
    return [event.row for event in events if event.table == table]


def time_of(row: Row) -> datetime:
    return datetime.fromisoformat(str(row["date_time"]))


def share(rows: list[Row], holds: Callable[[Row], bool]) -> float:
    return sum(holds(row) for row in rows) / len(rows)


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    for first in range(0, EVENTS, 50):
        tables = Counter(event.table for event in DRAWN[first : first + 50])
        assert tables == {"person": 1, "auction": 3, "bid": 46}


def test_half_of_the_bids_are_for_hot_auctions_and_three_quarters_by_hot_bidders() -> None:
    bids = rows_of("bid")
    assert share(bids, lambda r: is_hot(r["auction"], 0)) == pytest.approx(0.5, abs=NEAR)
    assert share(bids, lambda r: is_hot(r["bidder"], 1)) == pytest.approx(0.75, abs=NEAR)


def test_three_quarters_of_the_auctions_are_of_hot_sellers_who_are_no_hot_bidders() -> None:
    auctions = rows_of("auction")
    assert share(auctions, lambda r: is_hot(r["seller"], 0)) == pytest.approx(0.75, abs=NEAR)
    assert share(auctions, lambda r: is_hot(r["seller"], 1)) < NEAR


def is_hot(identifier: int | str, place: int) -> bool:
    return (int(identifier) - FIRST_ID) % HOT_EVERY == place


def test_bids_are_for_active_auctions_and_a_few_that_come_soon() -> None:
    for event in DRAWN:
        if event.table == "bid":
            behind = event.number // 50 * 3 + 2 + FIRST_ID - int(event.row["auction"])
            assert -LEAD <= behind <= ACTIVE_AUCTIONS


def test_an_auction_lasts_on_average_until_as_many_others_have_begun_as_may_be_active() -> None:
    auctions = rows_of("auction")
    begin, end = time_of(auctions[0]), time_of(auctions[-1])
    step_s = (end - begin).total_seconds() / (len(auctions) - 1)
    ends = [datetime.fromisoformat(str(row["expires"])) for row in auctions]
    lengths = [(e - time_of(r)).total_seconds() for e, r in zip(ends, auctions, strict=True)]
    assert min(lengths) > 0
    mean_s = sum(lengths) / len(lengths)
    assert mean_s == pytest.approx(ACTIVE_AUCTIONS * step_s, rel=0.05)


def test_with_zipfs_law_the_second_of_the_active_ones_has_half_of_what_the_first_has() -> None:
    drawn = list(draw_events(Workload(EVENTS, zipf=1.0), seed=1))
    bids = rows_of("bid", drawn)
    first, second = (share(bids, lambda r, p=p: is_hot(r["auction"], p)) for p in (0, 1))  # type: ignore[misc]
    assert second / first == pytest.approx(0.5, abs=0.05)


def test_rows_have_the_mean_sizes_of_the_definition() -> None:
    means = {"person": PERSON_BYTES, "auction": AUCTION_BYTES, "bid": BID_BYTES}
    for table, mean in means.items():
        sizes = [
            sum(len(v) if isinstance(v, str) else 8 for v in row.values()) for row in rows_of(table)
        ]
        # Some bids are longer without anything that fills them up.
        assert sum(sizes) / len(sizes) == pytest.approx(mean, rel=0.3)


def test_the_same_seed_gives_the_same_events_and_another_one_others() -> None:
    few = Workload(500, group=50)
    assert list(draw_events(few, seed=2)) == list(draw_events(few, seed=2))
    assert list(draw_events(few, seed=2)) != list(draw_events(few, seed=3))


def test_each_event_has_a_time_of_its_own_and_comes_no_later_than_the_watermark_waits() -> None:
    assert len({event.row["date_time"] for event in DRAWN}) == EVENTS
    assert all(a.number < b.number for a, b in pairwise(DRAWN))
    late_s = 0.0
    latest = time_of(DRAWN[0].row)
    for event in draw_events(inputs.AUCTIONS, seed=1):
        late_s = max(late_s, (latest - time_of(event.row)).total_seconds())
        latest = max(latest, time_of(event.row))
    assert 0 < late_s < float(WATERMARK_DELAY.split()[0])


def test_every_event_is_in_one_file_and_each_table_ends_with_two_closing_rows() -> None:
    divided = divide(DRAWN[:1000], files=3)
    for table in TABLES:
        *files, first, second = divided[table]
        assert [row for rows in files for row in rows] == rows_of(table, DRAWN[:1000])
        assert [*first, *second] == draw_closing(table)
        assert all(time_of(row) >= CLOSES_AT for row in (*first, *second))
        assert time_of(second[0]) > time_of(first[0])


def test_every_query_has_an_answer() -> None:
    assert ANSWERS.keys() == QUERIES.keys()


@pytest.mark.parametrize("kind", sorted(kinds.NEXMARK))
def test_a_run_with_the_answer_is_equal_and_one_that_lost_or_doubled_a_row_is_not(
    kind: str, tmp_path: Path
) -> None:
    (query,) = kinds.KINDS[kind]
    tables = tmp_path / "tables" / query
    for table in QUERIES[query].tables:
        write_files(tables / table, inputs.draw_files(table))
    expected = answer(query, tables)
    found = tmp_path / "found" / query / "batches"
    found.mkdir(parents=True)

    def compare(rows: list[str]) -> str | None:
        (found / "000000.jsonl").write_text("".join(f"1000 {row}\n" for row in rows))
        return answers.compare_with_engine(kind, tmp_path / "tables", tmp_path / "found")

    assert compare(expected[::-1]) is None
    assert "1 missing" in str(compare(expected[1:]))
    assert "1 too many" in str(compare([*expected, expected[0]]))
    changed = {**json.loads(expected[0]), next(iter(json.loads(expected[0]))): "another"}
    assert "1 missing" in str(compare([json.dumps(changed), *expected[1:]]))


def test_a_row_waits_until_its_batch_ends_and_only_what_arrives_or_ends_in_time_counts() -> None:
    begin_s = 1000.0
    arrived_s = [float(n) for n in range(10)]
    ends_s = {3.5: 3, 6.0: 3, 12.0: 4}
    samples = [
        BatchSample("q", number, begin_s + end_s, 1.0 + number, rows)
        for number, (end_s, rows) in enumerate(ends_s.items())
    ]
    figures = summarize_batches(samples, arrived_s, begin_s, (4.0, 9.0))
    # Rows 4 and 5 are in the second batch, 6 to 9 in the third, which ends too late to count.
    assert figures["rows"] == 6
    assert figures["batch_s"] == [2.0, 3.0]
    assert figures["p99_latency_s"] == 12.0 - 6.0
    assert figures["median_latency_s"] == (12.0 - 8.0 + 12.0 - 9.0) / 2
    assert figures["rows_per_s"] == 3 / (9.0 - 4.0)
