"""What the benchmark of Real-Time Mode makes of latencies."""

from __future__ import annotations

from typing import Any

from flink.figures import Done
from real_time_latency import summarize
from tables.real_time_latency import ALONE, WATCHED, tabulate_real_time_latency


def test_latencies_are_told_in_milliseconds_with_their_edges() -> None:
    done = [Done(float(n), 0.020) for n in range(1000)] + [Done(1000.0, 0.900)]
    figures = summarize(done)
    assert (figures["rows"], figures["median_ms"], figures["longest_ms"]) == (1001, 20.0, 900.0)


def test_the_target_is_judged_by_the_median_of_the_pairs_and_wrong_keys_are_counted() -> None:
    def make(watched_ms: float, wrong: int) -> dict[str, Any]:
        def measure(median_ms: float) -> dict[str, float]:
            return {"median_ms": median_ms, "p99_ms": 90.0, "longest_ms": 99.0, "wrong_keys": wrong}

        return {"measured": {WATCHED: measure(watched_ms), ALONE: measure(50.0)}}

    text = "\n".join(tabulate_real_time_latency([make(50.0, 0), make(51.0, 0), make(90.0, 1)]))
    assert "| median | 50 | 51 [50 to 90] | 1.02 [1.00 to 1.80] | yes |" in text
    assert text.endswith("Keys with a wrong result, in 6 runs: 2.")
