"""On a real cluster: how soon the operator's decisions show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tables.markdown import Result, spread, table


def tabulate_reaction(results: Sequence[Result]) -> Iterator[str]:
    storages = sorted({r["case"]["storage"] for r in results})
    figures = {
        "batch_s": "batch on one executor (s)",
        "restore_s_per_move": "restoring the state of a moved partition (s)",
        "scale_to_registered_s": "scale decision to the new executor's registration (s)",
        "scale_to_state_s": "scale decision to the first state on it (s)",
        "change_to_plan_s": "imbalance in Prometheus to the plan accepted by the driver (s)",
        "change_to_moved_s": "imbalance in Prometheus to the first partitions moved (s)",
        "plan_to_moved_batches": "plan accepted to the first partitions moved (batches)",
    }
    rows = []
    for name, text in figures.items():
        measured = [
            [r["measured"].get(name) for r in results if r["case"]["storage"] == storage]
            for storage in storages
        ]
        shown = [spread(v for v in values if v is not None) for values in measured]
        rows.append([text, *shown])
    yield from table(["", *storages], rows)
