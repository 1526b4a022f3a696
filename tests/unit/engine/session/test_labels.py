"""What queries are called."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from balancedstream.engine.session.labels import QueryLabels

IDS = ["3f2a9c1b-77", "3f2a9c1b-78", "81d0c6aa-04"]
NAMES = [None, "", "events", "events (3f2a9c1b)", *IDS]


@given(
    st.lists(st.sampled_from(IDS), min_size=1),
    st.fixed_dictionaries({each: st.sampled_from(NAMES) for each in IDS}),
)
def test_each_query_has_one_label_and_no_two_have_the_same(
    order: list[str], names: dict[str, str | None]
) -> None:
    labels = QueryLabels()
    found = [(each, labels.find(each, names[each])) for each in order]
    assert len(set(found)) == len(dict(found)) == len({label for _, label in found})
    assert all(label for _, label in found)


def test_the_only_query_of_a_name_is_called_by_it_and_one_without_by_its_id() -> None:
    labels = QueryLabels()
    assert labels.find(IDS[0], "events") == "events"
    assert labels.find(IDS[1], None) == IDS[1]
    assert labels.find(IDS[0], "events") == "events"
