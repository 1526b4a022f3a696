"""Another release of the operator, or of the definition, changes nothing that runs well."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from supervised import POD, Scene, conditions

from balancedstream_operator.api.annotations import RESTART_ANNOTATION
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.children.pods import SPEC_ANNOTATION
from balancedstream_operator.errors import RefusedError
from balancedstream_operator.observe.measurement import Measurement


def make_pod(scene: Scene, revision: str = "old", *, knows_its_spec: bool = True) -> None:
    """A driver that runs, from the template as it is now; the next release has another one."""
    scene.start_driver()
    template = scene.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["template"]
    metadata = scene.cluster.objects["Pod", POD]["metadata"]
    metadata["labels"]["controller-revision-hash"] = revision
    if knows_its_spec:
        metadata["annotations"] = copy.deepcopy(template["metadata"]["annotations"])


def upgrade(scene: Scene) -> None:
    """An operator of another release: its template of the driver is another one."""
    scene.cluster.objects["StatefulSet", "clicks-driver"]["status"] = {"updateRevision": "new"}
    scene.passes = scene.make_passes()


def run_stream(scene: Scene, *, knows_its_spec: bool) -> None:
    scene.run_pass()
    make_pod(scene, knows_its_spec=knows_its_spec)
    scene.finish_batches()
    scene.run_pass()


def change_spec(scene: Scene, **spec: Any) -> None:
    scene.resource["spec"].update(spec)
    scene.resource["metadata"]["generation"] += 1


@pytest.mark.parametrize("knows_its_spec", [True, False])
def test_an_upgrade_leaves_a_driver_that_runs_until_its_spec_changes(
    knows_its_spec: bool,
) -> None:
    scene = Scene()
    run_stream(scene, knows_its_spec=knows_its_spec)
    upgrade(scene)
    for _ in range(3):
        scene.finish_batches()
        done = scene.run_pass()
    assert scene.cluster.deleted == []
    assert conditions(done)["DriverOutdated"] == ("True", "OlderTemplate")
    assert conditions(done)["Ready"][0] == "True"
    change_spec(scene, executors={"min": 2, "max": 5})
    scene.finish_batches()
    scene.run_pass()
    assert scene.cluster.deleted == [], "this takes effect without a new driver"
    change_spec(scene, image="clicks:2")
    assert conditions(scene.run_pass())["Running"] == ("False", "Replacing")
    assert scene.cluster.deleted == [POD]


def test_an_annotation_asks_for_a_new_driver() -> None:
    scene = Scene()
    run_stream(scene, knows_its_spec=True)
    upgrade(scene)
    scene.finish_batches()
    scene.run_pass()
    scene.resource["metadata"]["annotations"] = {RESTART_ANNOTATION: "now"}
    scene.run_pass()
    assert scene.cluster.deleted == [POD]
    make_pod(scene, "new")
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["DriverOutdated"] == ("False", "Current")
    assert scene.cluster.deleted == [POD], "once"


def test_where_many_drivers_are_to_be_replaced_each_waits_until_the_one_before_is_ready() -> None:
    scene = Scene()
    run_stream(scene, knows_its_spec=True)
    upgrade(scene)
    other = Stream("bank", "visits", "uid-2")
    scene.turns.take(other, scene.now_s)
    scene.resource["metadata"]["annotations"] = {RESTART_ANNOTATION: "now"}
    scene.finish_batches()
    done = scene.run_pass()
    assert scene.cluster.deleted == []
    assert conditions(done)["DriverOutdated"] == ("True", "WaitsForTurn")
    (said,) = [c["message"] for c in done.status["conditions"] if c["type"] == "DriverOutdated"]
    assert "after that of bank/visits" in said
    assert conditions(done)["Ready"][0] == "True"

    scene.turns.end(other)
    scene.finish_batches()
    scene.run_pass()
    assert scene.cluster.deleted == [POD]
    assert scene.turns.take(other, scene.now_s), "until the new driver is ready"
    make_pod(scene, "new")
    scene.finish_batches()
    assert conditions(scene.run_pass())["Ready"][0] == "True"
    assert scene.turns.take(other, scene.now_s) is None


@pytest.mark.parametrize("restarted_before", [True, False])
def test_a_spec_that_changed_does_not_wait_for_other_streams(restarted_before: bool) -> None:
    scene = Scene()
    if restarted_before:
        scene.resource["metadata"]["annotations"] = {RESTART_ANNOTATION: "last month"}
    run_stream(scene, knows_its_spec=True)
    scene.turns.take(Stream("bank", "visits", "uid-2"), scene.now_s)
    change_spec(scene, image="clicks:2")
    upgrade(scene)
    scene.run_pass()
    assert scene.cluster.deleted == [POD]


def test_a_driver_that_is_not_ready_is_replaced_when_its_owner_asks() -> None:
    scene = Scene()
    run_stream(scene, knows_its_spec=True)
    scene.turns.take(Stream("bank", "visits", "uid-2"), scene.now_s)
    scene.now_s += 700.0
    assert isinstance(scene.measured, Measurement)
    backlog = {"q": 70.0}
    scene.measured = replace(scene.measured, scraped_s=scene.now_s, backlog_rows=backlog)
    assert conditions(scene.run_pass())["Ready"] == ("False", "NoProgress")
    scene.resource["metadata"]["annotations"] = {RESTART_ANNOTATION: "now"}
    upgrade(scene)
    scene.run_pass()
    assert scene.cluster.deleted == [POD]


def test_a_driver_that_does_not_run_is_replaced_by_what_the_upgrade_makes() -> None:
    scene = Scene()
    run_stream(scene, knows_its_spec=True)
    upgrade(scene)
    scene.cluster.objects["Pod", POD]["status"] = {
        "containerStatuses": [
            {"name": "driver", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        ]
    }
    scene.run_pass()
    assert scene.cluster.deleted == [POD]


def test_a_spec_that_changed_while_no_operator_ran_replaces_a_driver_of_an_older_release() -> None:
    scene = Scene()
    run_stream(scene, knows_its_spec=False)
    change_spec(scene, image="clicks:2")
    upgrade(scene)
    scene.run_pass()
    assert scene.cluster.deleted == [POD]


def test_fields_of_a_newer_definition_are_ignored_and_named_and_the_stream_runs() -> None:
    scene = Scene(mood="good")
    done = scene.run_until_running()
    assert conditions(done)["Accepted"] == ("True", "FieldsIgnored")
    (said,) = [c["message"] for c in done.status["conditions"] if c["type"] == "Accepted"]
    assert "ignores, spec.mood" in said
    assert done.status["phase"] == "Running"


def test_a_knob_of_an_older_release_is_named_with_the_reason_and_the_stream_runs() -> None:
    scene = Scene(scaling={"lowUtilization": 0.3, "highUtilization": 0.85})
    done = scene.run_until_running()
    assert conditions(done)["Accepted"] == ("True", "FieldsIgnored")
    (said,) = [c["message"] for c in done.status["conditions"] if c["type"] == "Accepted"]
    expected = "without effect in this release: spec.scaling.lowUtilization (it follows latency"
    assert expected in said
    assert "highUtilization" not in said, "an older definition filled it in"
    assert done.status["phase"] == "Running"


def test_an_older_definition_with_room_for_ten_conditions_gets_those_that_say_something() -> None:
    scene = Scene()
    scene.run_until_running()
    take = scene.cluster.write_status

    def take_ten(stream: Stream, status: dict[str, Any]) -> None:
        if len(status.get("conditions") or []) > 10:
            message = "status.conditions: Too many: 16: must have at most 10 items"
            raise RefusedError(message)
        take(stream, status)

    scene.cluster.write_status = take_ten  # type: ignore[method-assign]
    scene.passes = scene.make_passes()
    scene.measured = "nothing"
    for _ in range(3):
        done = scene.run_pass()
    assert done.failure is None
    assert len(conditions(done)) > 10
    shown = {c["type"]: c["status"] for c in scene.cluster.written[-1]["conditions"]}
    assert (shown["MetricsAvailable"], shown["Fallback"]) == ("False", "True")


def test_every_driver_says_which_spec_it_was_made_for() -> None:
    scene = Scene()
    scene.run_pass()
    template = scene.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["template"]
    before = template["metadata"]["annotations"][SPEC_ANNOTATION]
    change_spec(scene, driver={"memory": "2g"})
    scene.run_pass()
    template = scene.cluster.objects["StatefulSet", "clicks-driver"]["spec"]["template"]
    assert template["metadata"]["annotations"][SPEC_ANNOTATION] != before
