"""What queries are called: by their names, which several may share, but never two by one label."""

from __future__ import annotations

from itertools import chain, count

SHOWN = 8
"""So much of an id tells queries of one name apart."""


class QueryLabels:
    """Gives each query of an application a label of its own, for decisions, metrics and reports.

    Spark tells queries apart by their ids: one that goes on from its checkpoint keeps its id. A
    name is unique among the queries of one session that run, no more. So a query is called by its
    name if no other query of the application was, and by its name and id otherwise.

    >>> labels = QueryLabels()
    >>> labels.find("3f2a9c1b-77", "events"), labels.find("81d0c6aa-04", "events")
    ('events', 'events (81d0c6aa)')
    >>> labels.find("3f2a9c1b-77", "events"), labels.find("51e2d7bb-13", None)
    ('events', '51e2d7bb-13')
    """

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()

    def find(self, query_id: str, name: str | None) -> str:
        """The label of a query, the same one each time; with another name it has another one.

        Args:
            query_id: Spark's id.
            name: as the user gave it; None or "" if there is none.
        """
        key = query_id, name or ""
        if key not in self._by_id:
            named = (name, f"{name} ({query_id[:SHOWN]})", f"{name} ({query_id})") if name else ()
            # A name may be any text, also another query's id.
            numbered = (f"{query_id} ({n})" for n in count(2))
            wanted = chain(named, (query_id,), numbered)
            label = next(label for label in wanted if label not in self._taken)
            self._by_id[key] = label
            self._taken.add(label)
        return self._by_id[key]


of_process = QueryLabels()
"""A script may stop its session and make another: its report tells of the queries of both."""
