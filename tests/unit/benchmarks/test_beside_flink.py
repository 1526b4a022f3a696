"""What the benchmark beside Flink makes of rows and results, however a query was interrupted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from flink.figures import Bid, Done, Result, count_wrong, find_done, measure_change
from tables.beside_flink import (
    ARMS,
    CHANGE_COLUMNS,
    RESCALE,
    SKEW,
    SKEW_COLUMNS,
    tabulate_beside_flink,
)

BIDS = [Bid(float(second), second % 3, second * 7 % 50) for second in range(30)]
"""One a second, in turn of three bidders."""

COLUMNS = [*CHANGE_COLUMNS.values(), *SKEW_COLUMNS.values()]
RIGHT = {"lost": 0, "doubled": 0, "wrong_keys": 0}


def answer(bids: list[Bid], delay_s: float) -> list[Result]:
    """What a right query writes of bids that it reads one by one, so much later."""
    counts: dict[int, tuple[int, int]] = {}
    results = []
    for bid in bids:
        count, price = counts.get(bid.bidder, (0, 0))
        counts[bid.bidder] = count + 1, max(price, bid.price)
        results.append(Result(bid.at_s + delay_s, bid.bidder, *counts[bid.bidder]))
    return results


def test_each_row_has_the_latency_of_its_first_result() -> None:
    done = find_done(BIDS, answer(BIDS, 0.5))
    assert done == [Done(bid.at_s + 0.5, 0.5) for bid in BIDS]


def test_a_result_of_several_rows_ends_the_wait_of_all_of_them() -> None:
    last = [result._replace(at_s=40.0) for result in answer(BIDS, 0.0)[-3:]]
    done = find_done(BIDS, last)
    assert sorted(row.latency_s for row in done) == sorted(40.0 - bid.at_s for bid in BIDS)


def test_results_that_are_written_again_after_a_restart_count_once() -> None:
    results = answer(BIDS, 0.5)
    again = [result._replace(at_s=result.at_s + 20.0) for result in results[10:20]]
    written = results[:20] + again + [r._replace(at_s=r.at_s + 20.0) for r in results[20:]]
    done = find_done(BIDS, written)
    assert len(done) == len(BIDS)
    assert [row.latency_s for row in done] == [0.5] * 20 + [20.5] * 10
    assert count_wrong(BIDS, written) == RIGHT


def test_a_row_that_the_state_lost_or_has_twice_is_found() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chosen = BIDS[random.Random(seed).randrange(len(BIDS))]
    lost = [bid for bid in BIDS if bid is not chosen]
    assert count_wrong(BIDS, answer(lost, 0.0)) == {"lost": 1, "doubled": 0, "wrong_keys": 1}
    doubled = answer([*BIDS, chosen], 0.0)
    assert count_wrong(BIDS, doubled) == {"lost": 0, "doubled": 1, "wrong_keys": 1}


def test_a_wrong_price_is_found_where_the_count_is_right() -> None:
    results = answer(BIDS, 0.0)
    results[-1] = results[-1]._replace(price=99)
    assert count_wrong(BIDS, results) == {**RIGHT, "wrong_keys": 1}


def test_a_pause_after_the_request_is_the_change_s_and_not_one_before() -> None:
    at_s = [*range(21), 28, *(30 + n / 10 for n in range(40))]
    done = [Done(float(second), 0.5) for second in at_s]
    times_s = {"asked": 20.5, "there": 27.0, "caught_up": 28.0, "burst": 30.0, "over": 34.0}
    figures = measure_change(done, times_s)
    assert figures["silent_s"] == 8.0
    assert figures["usual_silent_s"] == 1.0
    assert (figures["change_s"], figures["caught_up_s"]) == (6.5, 7.5)
    assert figures["rows_per_s"] == pytest.approx(10.0, abs=0.3)


def test_the_table_has_each_arm_and_says_whether_rows_were_lost() -> None:
    change = dict.fromkeys(
        ("silent_s", "usual_silent_s", "longest_s", "change_s", "caught_up_s"), 1.0
    )
    figures = change | {"rows_per_s": 90.0, "median_s": 0.5}

    def make(scenario: str, arm: str) -> dict[str, Any]:
        measured = {"out": figures, "in": figures, "skew": figures, **RIGHT}
        return {"case": {"scenario": scenario, "arm": arm}, "measured": measured}

    results = [make(scenario, arm) for scenario in (RESCALE, SKEW) for arm in ARMS]
    text = "\n".join(tabulate_beside_flink(results))
    assert [text.count(f"| {arm} |") for arm in ARMS] == [3] * len(ARMS)
    assert text.endswith("0 rows lost, 0 doubled, 0 keys wrong in 8 runs | yes |")
    results[0]["measured"]["lost"] = results[0]["measured"]["wrong_keys"] = 1
    text = "\n".join(tabulate_beside_flink(results))
    assert text.endswith("1 rows lost, 0 doubled, 1 keys wrong in 8 runs | **no** |")
