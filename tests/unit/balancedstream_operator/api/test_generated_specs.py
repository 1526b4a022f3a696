"""Whatever the API server takes for a spec becomes objects, or a refusal that names the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from declared import find_broken_limits, find_differences, least_partitions
from generated_specs import (
    FOLLOWING,
    FULL,
    RUNNING,
    Mutation,
    draw_changes,
    draw_value,
    fill_in,
    find_misfits,
    mutate,
    read_schema,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from supervised import POD, Scene

from balancedstream_operator.api.spec import read_spec
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.endpoints import choose_endpoint
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.prometheus import Prometheus
from balancedstream_operator.settings import Settings

MOST_PARTITIONS = read_schema()["properties"]["partitions"]["maximum"]


@settings(max_examples=300)
@given(draw_changes())
@example((Mutation(("checkpoints",), {"uri": ""}),))
@example((Mutation(("executors",), {"max": 1000, "cores": 64}),))
@example((Mutation(("driver", "podTemplate"), {"metadata": None, "spec": []}),))
@example((Mutation(("sparkConf",), {"spark.x": " \f\n", "": ""}),))
@example((Mutation(("metrics", "labels"), {"x" * 5000: ""}),))
def test_a_spec_that_the_schema_allows_is_what_runs_or_is_refused_by_field(
    changes: tuple[Mutation, ...],
) -> None:
    check(RUNNING, changes)


@settings(max_examples=100)
@given(draw_changes())
@example(())
@example((Mutation(("executors", "min"), 6),))
@example((Mutation(("executors", "min"), 1), Mutation(("executors", "max"), 1)))
@example((Mutation(("executors", "fixed"), 9),))
@example((Mutation(("driver", "serviceAccount"), {"name": "mine"}),))
def test_so_it_is_for_a_spec_that_says_something_of_each_field(
    changes: tuple[Mutation, ...],
) -> None:
    check(FULL, changes)


@settings(max_examples=100)
@given(draw_changes())
def test_so_it_is_for_the_application_of_another_operator(changes: tuple[Mutation, ...]) -> None:
    check(FOLLOWING, changes)


@settings(max_examples=150)
@given(st.sampled_from([RUNNING, FOLLOWING]), draw_changes(wrong=True))
def test_and_for_what_only_an_older_definition_lets_through(
    base: dict[str, Any], changes: tuple[Mutation, ...]
) -> None:
    check(base, changes)


@settings(max_examples=50)
@given(draw_value(read_schema()["properties"]["metrics"]["properties"]["prometheusUrl"]))
def test_and_for_each_url_where_streams_may_name_any(url: str) -> None:
    spec = read_spec({**RUNNING, "metrics": {"prometheusUrl": url}})
    with suppress(MissingMeasurementsError):
        Prometheus(
            choose_endpoint(spec, Settings("http://prometheus", allowed_urls=("*",)), {}),
            AnswerBudgets(),
        )


def check(base: Mapping[str, Any], changes: tuple[Mutation, ...]) -> None:
    """A stream of a changed spec gets its objects and is led, or is refused for the change."""
    scene = Scene()
    scene.resource["spec"] = fill_in(read_schema(), mutate(base, changes))
    accepted = run_pass(scene)
    if accepted["status"] == "True":
        check_children(scene)
        scene.start_driver()
        scene.finish_batches()
        run_pass(scene)
        assert list(find_broken_limits(scene.resource["spec"], scene.resource["status"])) == []
        return
    assert accepted["reason"] == "InvalidSpec"
    changed = {f"spec.{change.path[0]}" for change in changes}
    field = re.match(r"spec\.\w+", accepted["message"])
    # A target that comes or goes makes other fields required, or forbidden.
    assert field, accepted["message"]
    assert field[0] in changed or "spec.targetRef" in changed, accepted["message"]
    assert {kind for kind, _ in scene.cluster.objects} == {"BalancedStream"}


def run_pass(scene: Scene) -> Mapping[str, Any]:
    """A pass that comes to its end, with a status that the API server takes; `Accepted` in it."""
    done = scene.run_pass()
    assert done.failure is None
    assert list(find_misfits(read_schema("status"), dict(done.status))) == []
    accepted: Mapping[str, Any] = next(
        condition for condition in done.status["conditions"] if condition["type"] == "Accepted"
    )
    return accepted


def check_children(scene: Scene) -> None:
    """What was declared is what the objects say, by a reading of their own."""
    spec, objects = scene.resource["spec"], scene.cluster.objects
    assert ("ConfigMap", "clicks-plan") in objects
    assert (("StatefulSet", POD.removesuffix("-0")) in objects) == ("targetRef" not in spec)
    if "targetRef" in spec:
        return
    partitions = scene.resource["status"]["partitions"]
    assert least_partitions(spec) <= partitions <= MOST_PARTITIONS
    assert list(find_differences(spec, "clicks", partitions, objects)) == []
