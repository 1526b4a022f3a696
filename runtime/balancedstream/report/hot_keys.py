"""What the hottest keys cost and which state partition they were in, as one figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from balancedstream.record.wording import format_duration
from balancedstream.report.axis import BatchAxis, headroom, tick_duration, widen
from balancedstream.report.colours import hottest
from balancedstream.report.marks import draw_moves, key_move_marks
from balancedstream.report.summary import QueryRecords
from balancedstream.report.svg import LEFT, Figure, Panel, Scale, drawing

KEYS = 8
LANES = 12
LANE_PX = 34.0


@dataclass(frozen=True, slots=True)
class _HotKeys:
    """One operator's hot keys, in each batch on record.

    Attributes:
        names: the keys shown, hottest first.
        others: how many more there were.
        places: for each batch, key to its state partition and busy seconds.
    """

    names: tuple[str, ...]
    others: int
    places: tuple[Mapping[str, tuple[int, float]], ...]

    def busy_s(self, key: str) -> list[float | None]:
        """Returns the key's busy seconds in each batch; None where it was not hot."""
        return [here[key][1] if key in here else None for here in self.places]


def hot_keys_figure(query: QueryRecords, operator: int, axis: BatchAxis) -> Figure | None:
    """Draws what the hottest keys cost in each batch, and which state partition they were in.

    Returns:
        None if the operator's keys are not balanced, so that nothing is known about them.
    """
    hot = _find_hot_keys(query, operator, axis)
    if not hot.names:
        return None
    colours = {key: f"k{i}" for i, key in enumerate(hot.names)}
    highest = max((place[1] for here in hot.places[1:] for place in here.values()), default=1.0)
    costs = Panel(axis.scale, Scale(0.0, headroom(highest), 212.0, 62.0))
    costs.y_axis("busy time of a key in a batch", tick_duration(highest), label_lift_px=44.0)
    costs.rule(0.0, "baseline")
    partitions = [dict(here.values()) for here in hot.places]
    shown, rest = hottest(partitions, LANES, sorted)
    lane = {partition: i for i, partition in enumerate(shown)} | dict.fromkeys(rest, len(shown))
    names = [*map(str, shown), *(["rest"] if rest else [])]
    bottom = 250.0 + LANE_PX * len(names)
    lanes = Panel(axis.scale, Scale(float(len(names)), 0.0, bottom, 250.0))
    lanes.y_axis("state partition that the key was in", str, ticks=[])
    for i, name in enumerate(names):
        lanes.rule(float(i), "grid")
        lanes.text(LEFT - 8, lanes.y.px(i + 0.5) + 4, name, css="tick", anchor="end")
    axis.draw(lanes)
    axis.draw_gaps(costs)
    axis.draw_gaps(lanes)
    marks = key_move_marks(axis, [move for move in query.key_moves if move.operator == operator])
    draw_moves(costs, marks)
    for x, _, _ in marks:
        lanes.column(x, "move-line")
    for i, (key, css) in enumerate(colours.items()):
        costs.line(axis.runs(hot.busy_s(key)), f"line {css}")
        within = (i + 1) / (len(colours) + 1)
        at = [lane[here[key][0]] + within if key in here else None for here in hot.places]
        lanes.line(map(widen, axis.runs(at, _last)), f"line {css}")
    for panel in (costs, lanes):
        axis.hover(panel, lambda strip: _describe_keys(strip, hot, axis, operator))
    caption = "A key moves with all its state, between two batches."
    if hot.others:
        caption += f" Shown: the {len(hot.names)} hottest of {len(hot.names) + hot.others} keys"
        caption += " that were hot in any batch."
    legend = [(f"key line {css}", key) for key, css in colours.items()]
    if marks:
        legend.append(("key move", "keys that moved, with their number"))
    label = "Busy time of hot keys, and their state partitions"
    return Figure("Hot keys", caption, drawing(bottom + 40.0, label, [costs, lanes]), tuple(legend))


def _find_hot_keys(query: QueryRecords, operator: int, axis: BatchAxis) -> _HotKeys:
    position = {batch.batch: i for i, batch in enumerate(axis.batches)}
    places: list[dict[str, tuple[int, float]]] = [{} for _ in axis.batches]
    total_s: dict[str, float] = {}
    for sample in query.key_samples:
        if sample.operator != operator or sample.batch not in position:
            continue
        here = places[position[sample.batch]]
        # In the batch that it arrives in, a key is reported from both partitions.
        if sample.busy_s >= here.get(sample.key, (0, 0.0))[1]:
            here[sample.key] = sample.partition, sample.busy_s
        total_s[sample.key] = total_s.get(sample.key, 0.0) + sample.busy_s
    names = sorted(total_s, key=lambda key: (-total_s[key], key))
    shown = {*names[:KEYS]}
    return _HotKeys(
        tuple(names[:KEYS]),
        len(names[KEYS:]),
        tuple({key: place for key, place in here.items() if key in shown} for here in places),
    )


def _describe_keys(strip: range, hot: _HotKeys, axis: BatchAxis, operator: int) -> str:
    """Names the hot keys of the strip's last batch with any, hottest first."""
    last = next((i for i in reversed(strip) if hot.places[i]), None)
    if last is None:
        return "no hot key on record"
    load = next((each for each in axis.batches[last].loads if each.operator == operator), None)
    named = []
    by_load = sorted(hot.places[last].items(), key=lambda entry: -entry[1][1])
    for key, (partition, busy_s) in by_load:
        text = f"{key} {format_duration(busy_s)} in partition {partition}"
        if load is not None and partition < len(load.partition_executor):
            share = busy_s / sum(load.partition_busy_s) if any(load.partition_busy_s) else 0.0
            text += (
                f" on executor {load.partition_executor[partition]} ({100 * share:.0f} % of all)"
            )
        named.append(text)
    return ", ".join(named)


def _last(values: list[float]) -> float:
    return values[-1]
