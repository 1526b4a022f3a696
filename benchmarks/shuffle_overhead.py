"""The command `benchmarks/shuffle.py --overhead`: what measuring adds to a function."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from harness.benchmark import Benchmark, describe_code
from harness.results import RESULTS, Case

from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.shuffling.joining import ARROW, join_outputs, make_pandas_form
from balancedstream.shuffling.timing import (
    FunctionMeter,
    HiddenColumns,
    Piece,
    cut_arrow,
    cut_pandas,
)

PIECES = 10_000
"""Pieces that are measured to time one."""


def measure_overhead() -> None:
    """What a piece of one row costs to cut, measure and join.

    The function does nothing, and all items are distinct.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--overhead", action="store_true", help="what measuring adds")
    parser.parse_args()
    file = RESULTS / "shuffle_overhead.jsonl"
    benchmark = Benchmark("shuffle, overhead", file.parent, file, smoke=False, code=describe_code())
    chance = np.random.default_rng(1)
    columns: dict[str, Any] = {
        "item": chance.integers(0, 2**60, PIECES),
        "estimated_s": chance.random(PIECES),
        "number": np.arange(PIECES),
        "text": [f"text {n}" for n in range(PIECES)],
    }
    frame = pd.DataFrame(columns)
    batch = pa.RecordBatch.from_pandas(frame)
    pieces = [Piece(item, 1, 0.001, None) for item in columns["item"]]
    hidden = HiddenColumns("item", "estimated_s")
    ways: dict[str, tuple[Callable[[], list[Piece[Any]]], Callable[[Any], Iterator[Any]]]] = {
        "pandas": (
            lambda: cut_pandas(frame, hidden),
            partial(join_outputs, form=make_pandas_form()),
        ),
        "Arrow": (lambda: cut_arrow(batch, hidden), partial(join_outputs, form=ARROW)),
        "rows": (lambda: pieces, iter),
    }
    cases: list[Case] = [{"way": way, "repetition": n} for way in ways for n in range(1, 6)]
    for case in benchmark.find_missing(cases):
        # The first pass is slower, whatever it does.
        for _ in range(2):
            meter = FunctionMeter[Any, Any]("f", CostSketch(0.001, 0.1, seed=0))
            began_s = time.perf_counter()
            cut, join = ways[str(case["way"])]
            for _ in join(meter.run(iter, (cut() for _ in range(1)))):
                pass
            meter.summarize()
            piece_us = (time.perf_counter() - began_s) / PIECES * 1e6
        benchmark.record(None, case, {"pieces": PIECES}, {"piece_us": round(piece_us, 2)})
