"""Which kinds of applications the plugin was seen to balance, on which Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tables.markdown import NONE, Result, spread, table


def tabulate_plugin_apps(results: Sequence[Result]) -> Iterator[str]:
    cells = {
        (str(result["case"]["application"]), str(result["case"]["spark"])): result["measured"]
        for result in results
    }
    sparks = sorted({spark for _, spark in cells}, key=lambda version: version.split("."))
    kinds = sorted({kind for kind, _ in cells})
    rows = [
        [
            kind,
            *(
                f"yes ({cells[kind, spark]['batches']})" if (kind, spark) in cells else NONE
                for spark in sparks
            ),
            spread((cells[place]["end_s"] for place in cells if place[0] == kind), 1),
        ]
        for kind in kinds
    ]
    yield from table(["application", *sparks, "end (s)"], rows)
