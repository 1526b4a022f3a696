"""A stream goes on although its status is lost, its plan is refused, or another operator writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from supervised import ALL_ON_1, POD, Scene, conditions

from balancedstream.core.observations import ScaleOut
from balancedstream.core.past import Past
from balancedstream.core.wire.plan import Answer, KeyPlacement, Plan
from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.errors import ClusterError
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.answers import MAX_AHEAD, judge_control
from balancedstream_operator.plan.record import (
    Record,
    Refusals,
    read_record,
)
from balancedstream_operator.repartition.steps import Repartition

PLAN = ("ConfigMap", "clicks-plan")
ANSWER = ("ConfigMap", "clicks-answer")


def answer(scene: Scene, epoch: int, refused: str = "") -> None:
    """The driver answers this, and nothing else."""
    scene.cluster.objects[ANSWER]["data"] = {"answer.json": Answer(epoch, refused).to_json()}


def finish_batches_without_the_plan(scene: Scene, epoch: int = 0) -> None:
    """Batches run where everything was; the driver has this epoch in force."""
    found = scene.cluster.objects.pop(PLAN)
    scene.epoch = epoch
    scene.finish_batches()
    scene.cluster.objects[PLAN] = found


# --- the status is lost


def scale_out(scene: Scene) -> None:
    scene.resource["spec"]["executors"]["fixed"] = 3
    scene.finish_batches()
    scene.run_pass()
    scene.resource["spec"]["executors"]["fixed"] = 0


@pytest.mark.parametrize("restarts", [True, False])
def test_a_lost_status_loses_neither_count_nor_time_nor_epoch_nor_partitions(
    restarts: bool,
) -> None:
    scene = Scene()
    scene.run_until_running()
    scale_out(scene)
    known = {
        name: scene.resource["status"][name]
        for name in ("desiredExecutors", "lastScaleTime", "planEpoch", "partitions")
    }
    assert known["desiredExecutors"] == 3
    del scene.resource["status"]
    scene.resource["spec"]["executors"]["max"] = 100
    if restarts:
        scene.passes = scene.make_passes()
    scene.finish_batches()
    done = scene.run_pass()
    assert {name: done.status[name] for name in known} == known


def test_a_status_that_cannot_be_written_after_a_plan_loses_nothing() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.resource["spec"]["executors"]["fixed"] = 3
    scene.finish_batches()
    scene.cluster.takes_no_status = True
    with pytest.raises(ClusterError):
        scene.run_pass()
    scene.cluster.takes_no_status = False
    scene.cluster.written.clear()
    scene.finish_batches()
    done = scene.run_pass()
    assert done.status["desiredExecutors"] == 3
    assert [d["kind"] for d in done.status["decisions"]] == ["scale", "move"]
    assert "Scaling" in {e.reason for e in done.events}, "and its events come with the next one"
    assert scene.cluster.written[0]["decisions"] == done.status["decisions"]


def test_an_operator_that_dies_between_plan_and_status_scales_no_second_time() -> None:
    scene = Scene()
    scene.run_until_running()
    before = dict(scene.resource["status"])
    scale_out(scene)
    plan = scene.cluster.plan()
    scene.resource["status"] = before
    scene.passes = scene.make_passes()
    scene.finish_batches()
    done = scene.run_pass()
    assert done.status["desiredExecutors"] == 3
    assert scene.cluster.plan() == plan


def test_a_status_that_somebody_emptied_is_written_again_with_the_children() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.now_s += 600.0
    scene.finish_batches()
    scene.cluster.written.clear()
    done = scene.run_pass()
    assert scene.cluster.written == [done.status]


def test_a_restarted_operator_knows_the_last_scale_out_and_judges_it_by_what_shows_now() -> None:
    scene = Scene(executors={"min": 2, "max": 5})
    scene.placement = {p: str(1 + p % 2) for p in range(8)}
    scene.run_pass()
    scene.start_driver()

    def judge(busy_s: float, duration_s: float) -> bool | None:
        share = Counter(scene.placement.values())
        # As evenly on the executors as a scale-out has to be to show what it brings.
        scene.finish_batches({p: busy_s / share[e] for p, e in scene.placement.items()})
        assert isinstance(scene.measured, Measurement)
        batches = tuple(replace(b, duration_s=duration_s) for b in scene.measured.batches)
        scene.measured = replace(scene.measured, batches=batches)
        scene.passes = scene.make_passes()
        scene.run_pass()
        record = read_record(scene.cluster.objects[PLAN]["data"]["record.json"])
        assert record is not None
        return next((known.failed for known in record.past.scale_outs), None)

    assert judge(25.0, 25.5) is False, "nothing shows yet"
    scene.executors = {str(number): 1 for number in range(1, 6)}
    for _ in range(4):
        judge(25.0, 25.5)
    assert judge(25.0, 25.5) is True, "more executors, and batches as slow as before"
    for _ in range(4):
        judge(9.0, 9.5)
    assert judge(9.0, 9.5) is False, "they were cold"


# --- the driver refuses a plan


def test_after_a_refusal_the_next_plan_asks_for_the_same_again_and_is_balanced_by() -> None:
    scene = Scene()
    scene.run_until_running()
    finish_batches_without_the_plan(scene)
    answer(scene, 0, "plan.budget_s: unknown field, allowed are epoch")
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert conditions(done)["PlanRefused"] == ("True", "PlanRefused")
    assert conditions(done)["Fallback"] == ("False", "InControl"), "it is not silent"
    assert plan is not None
    assert plan.epoch == 2
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["PlanRefused"] == ("False", "PlanAccepted")
    assert conditions(done)["Balanced"] == ("True", "Even")


def test_a_refused_change_of_the_number_is_asked_for_again() -> None:
    scene = Scene()
    scene.placement = {0: "1", 1: "2", 2: "1", 3: "2"}
    scene.run_pass()
    scene.start_driver()
    level = dict.fromkeys(range(4), 1.0)
    scene.finish_batches(level)
    scene.run_pass()
    scene.resource["spec"]["executors"]["fixed"] = 3
    scene.run_pass()
    answer(scene, 0, "no")
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert (plan.epoch, len(plan.executors)) == (2, 3)
    assert done.status["desiredExecutors"] == 3


def test_what_an_older_driver_does_not_know_is_left_out_of_the_next_plan() -> None:
    scene = Scene(migration={"budgetSeconds": 3})
    scene.run_until_running()
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.budget_s == 3
    finish_batches_without_the_plan(scene)
    answer(scene, 0, "plan.budget_s: unknown field, allowed are epoch, executors")
    scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert "budget_s" not in plan.to_json()


def test_plans_that_are_refused_again_and_again_come_ever_more_slowly() -> None:
    scene = Scene()
    scene.run_until_running()
    epochs: list[int] = []
    for _ in range(60):
        finish_batches_without_the_plan(scene)
        answer(scene, 0, f"no {len(epochs)}")
        done = scene.run_pass()
        epochs.append(done.status["planEpoch"])
    assert epochs[0] == 2
    assert epochs[-1] < 9, "one each pass would be 61"
    assert conditions(done)["PlanRefused"][0] == "True"


def test_the_same_words_of_an_older_refusal_are_no_refusal_of_the_next_plan() -> None:
    plan = Plan(3, ("a",), {})
    judge = partial(judge_control, plan, 100.0, "no")
    waiting = judge(Answer(1, "no"), 110.0)
    assert (waiting.follows, waiting.refusal, waiting.silent_s) == (None, "", None)
    assert judge(Answer(1, "not this"), 110.0).refusal == "not this"
    assert judge(Answer(1, "no"), 161.0).refusal == "no"
    assert judge(Answer(1), 161.0).silent_s == 61.0
    assert judge(Answer(3), 161.0).follows is True


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ('key "a": its type has changed; nothing changed', Refusals("", 1, (("q", '"a"'),))),
        (
            "key_placements: key 12 cannot go to partition 9: q has 8",
            Refusals("", 1, (("q", "12"),)),
        ),
        ("plan.budget_s: must be a number from 0.001 to 60", Refusals("", 1, plain=True)),
        ("the key's type has changed", Refusals("", 1, all_keys=True)),
        ("plan.epoch: 2 is older than 7", Refusals("", 1)),
    ],
)
def test_the_words_of_a_refusal_say_what_to_avoid(reason: str, expected: Refusals) -> None:
    placed = tuple(KeyPlacement("q", key, 1) for key in ('"a"', '"b"', "1", "12"))
    plan = Plan(2, ("1",), {}, key_placements=placed)
    assert Refusals().add(plan, reason) == expected


def test_a_driver_that_is_new_is_asked_for_everything_again() -> None:
    scene = Scene(migration={"budgetSeconds": 3})
    scene.run_until_running()
    budgets_s: list[float] = []
    for uid in ("uid-7", "uid-7", "uid-8"):
        finish_batches_without_the_plan(scene)
        answer(scene, 0, f"plan.budget_s: unknown {len(budgets_s)}")
        scene.cluster.objects["Pod", POD]["metadata"]["uid"] = uid
        if uid == "uid-8":
            scene.finish_batches()
            scene.resource["spec"]["executors"]["fixed"] = 3
        scene.now_s += 600.0
        scene.run_pass()
        plan = scene.cluster.plan()
        assert plan is not None
        budgets_s.append(plan.budget_s)
    assert budgets_s == [1.0, 1.0, 3]


# --- others write plans


def write_plan(scene: Scene, plan: Plan, record: Record | None = None) -> None:
    """Another operator writes a plan."""
    data = {"plan.json": plan.to_json()} | ({"record.json": record.write()} if record else {})
    scene.cluster.objects[PLAN]["data"] = data
    scene.cluster.versions += 1
    scene.cluster.objects[PLAN]["metadata"]["resourceVersion"] = str(scene.cluster.versions)


def test_a_newer_plan_of_another_operator_is_adopted_with_its_record() -> None:
    scene = Scene()
    scene.run_until_running()
    theirs = Plan(5, ("1", "2", "+1"), {("q", 0): (0, 1, 1, 1)})
    write_plan(scene, theirs, Record(48, epoch=5, past=Past(3, scene.now_s)))
    scene.finish_batches()
    done = scene.run_pass()
    assert scene.cluster.plan() == theirs
    assert "PlanAdopted" in {e.reason for e in done.events}
    assert (done.status["planEpoch"], done.status["desiredExecutors"]) == (5, 3)


def test_an_older_plan_of_another_operator_is_replaced_by_the_newer_one() -> None:
    scene = Scene()
    scene.run_until_running()
    write_plan(scene, Plan(4, ("1", "2"), {}))
    scene.finish_batches()
    scene.run_pass()
    ours = scene.cluster.plan()
    write_plan(scene, Plan(3, ("1", "2"), {}))
    done = scene.run_pass()
    assert "PlanOverwritten" in {e.reason for e in done.events}
    assert scene.cluster.plan() == ours


def test_a_restarted_operator_ignores_a_plan_that_is_older_than_its_record() -> None:
    scene = Scene()
    scene.run_until_running()
    scale_out(scene)
    record = read_record(scene.cluster.objects[PLAN]["data"]["record.json"])
    write_plan(scene, Plan(1, ("1",), {}), record)
    scene.passes = scene.make_passes()
    done = scene.run_pass()
    assert "PlanUnreadable" in {e.reason for e in done.events}
    assert done.status["desiredExecutors"] == 3
    plan = scene.cluster.plan()
    assert plan is not None
    assert (plan.epoch, len(plan.executors)) == (3, 3), "the driver is told what was lost"


def test_rubbish_that_an_operator_found_is_replaced_by_the_next_plan_and_not_in_each_pass() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.cluster.objects[PLAN]["data"]["plan.json"] = "rubbish"
    scene.passes = scene.make_passes()
    apply_plan, applied = scene.cluster.apply_plan, 0

    def apply_beside_others(manifest: Manifest) -> Manifest:
        """What somebody else wrote stays unless it is replaced, as the API server has it."""
        nonlocal applied
        applied += 1
        before = scene.cluster.objects[PLAN]["data"]
        return apply_plan(manifest | {"data": before | manifest["data"]})

    scene.cluster.apply_plan = apply_beside_others  # type: ignore[method-assign]
    scene.measured = "nothing"
    for _ in range(4):
        scene.run_pass()
    assert applied == 1
    finish_batches_without_the_plan(scene, epoch=1)
    scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.epoch == 2


def test_two_operators_never_take_an_epoch_back() -> None:
    scene = Scene()
    scene.run_until_running()
    other = scene.make_passes()
    epochs = []
    for turn in range(12):
        scene.finish_batches()
        scene.resource["spec"]["executors"]["fixed"] = 3 + turn % 2
        scene.passes, other = other, scene.passes
        scene.run_pass()
        plan = scene.cluster.plan()
        assert plan is not None
        epochs.append(plan.epoch)
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 6, "both made plans"


def test_a_plan_is_not_written_over_one_that_came_after_the_last_look() -> None:
    scene = Scene()
    scene.run_until_running()
    theirs = Plan(9, ("1", "2"), {})
    scene.resource["spec"]["executors"]["fixed"] = 3
    scene.finish_batches()
    measured = scene.measured

    def observe(*_: object) -> Any:
        write_plan(scene, theirs)
        return measured

    scene.observe = observe  # type: ignore[method-assign, assignment]
    with pytest.raises(ClusterError, match="has been modified"):
        scene.run_pass()
    assert scene.cluster.plan() == theirs


@pytest.mark.parametrize("restarts", [True, False])
def test_an_epoch_that_is_far_ahead_is_forged_and_the_plan_is_replaced(restarts: bool) -> None:
    scene = Scene()
    scene.run_until_running()
    record = read_record(scene.cluster.objects[PLAN]["data"]["record.json"])
    write_plan(scene, Plan(2**53 - 1, ("1", "2"), {}), record)
    if restarts:
        scene.passes = scene.make_passes()
    done = scene.run_pass()
    assert {e.reason for e in done.events} & {"PlanOverwritten", "PlanUnreadable"}
    assert "9007199254740991" not in str(scene.cluster.objects[PLAN]["data"])
    scene.epoch = 0
    scene.placement = dict(ALL_ON_1)
    scene.finish_batches()
    assert scene.run_pass().status["planEpoch"] < 4


def test_a_status_with_a_forged_epoch_counts_for_nothing_beside_the_plan() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.resource["status"]["planEpoch"] = 2**53 - 1
    scene.passes = scene.make_passes()
    scene.resource["spec"]["executors"]["fixed"] = 3
    scene.finish_batches()
    done = scene.run_pass()
    assert done.failure is None
    assert done.status["planEpoch"] == 2


def test_an_answer_and_a_metric_with_a_forged_epoch_do_not_raise_the_next_one() -> None:
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.epoch = 2 + MAX_AHEAD
    scene.finish_batches()
    done = scene.run_pass()
    assert "AnswerUnreadable" in {e.reason for e in done.events}
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.epoch == done.status["planEpoch"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"partitions": "many"}',
        '{"partitions": 8, "refusals": {"keys": [1]}}',
        '{"partitions": 8, "scaled_s": "yesterday"}',
        '{"partitions": 8, "scaled_s": NaN}',
        '{"partitions": 8, "delay_s": null}',
        '{"partitions": 8, "room": "much"}',
        '{"partitions": 8, "planned_after": {"q": null}}',
        '{"partitions": 8, "promised": {"q": "9"}}',
        '{"partitions": 8, "scale_outs": [{}]}',
        '{"partitions": 8, "scale_outs": 3}',
        '{"partitions": 8, "scale_outs": [{"query": 1, "at_s": 9, "before": 1, "after": 2, '
        '"rows_per_s": 9, "gain": 1}]}',
        '{"partitions": 8, "starting": 1}',
        '{"partitions": 8, "epoch": 1.5}',
        '{"partitions": 8, "epoch": true}',
        '{"partitions": ' + "[" * 100_000,
    ],
)
def test_a_record_that_cannot_be_read_is_none(text: str) -> None:
    assert read_record(text) is None


@pytest.mark.parametrize("at_s", [-37947.2, 0.0, 1e12])
def test_a_record_is_read_again_however_wrong_the_clock_was(at_s: float) -> None:
    asked = Repartition(24, 48, "rewriting", at_s, stopped_s=at_s)
    past = Past(scaled_at_s=at_s)
    record = Record(24, epoch=3, past=past, planned_s=at_s, repartition=asked)
    assert read_record(record.write()) == record


def test_a_record_of_a_newer_release_is_read_without_what_is_new() -> None:
    assert read_record('{"partitions": 8, "epoch": 3, "mood": "good"}') == Record(8, epoch=3)


def test_a_record_is_written_and_read_as_release_0_1_0_has_it() -> None:
    text = (
        '{"application":"app-1","approved":"","desired":3,"epoch":5,"known_refusal":"",'
        '"moved":true,"partitions":48,"planned_after":{"q":7},"planned_s":20.0,'
        '"refusals":{"all_keys":false,"count":0,"driver":"","keys":[],"plain":false},'
        '"scale_out":{"after":3,"at_s":10.0,"before":2,"failed":false,"gain":0.5,"rows_per_s":9.0},'
        '"scaled_s":10.0}'
    )
    # One scale-out for all queries says nothing of one of them.
    past = Past(3, 10.0, planned_after={"q": 7}, moved=True)
    record = Record(48, epoch=5, past=past, planned_s=20.0, application="app-1")
    assert read_record(text) == record
    written = record.write().replace('"promised":{},"', '"').replace('"room":1.1,"', '"')
    taught = '"delay_s":60.0,', '"removed":false,', '"start_s":20.0,"starting":false}'
    written = written.replace(taught[0], "").replace(taught[1], "")
    one = text[text.index('"scale_out":') : text.index('"scaled_s"')]
    assert written.replace("," + taught[2], "}") == text.replace(one, '"scale_outs":[],')
    known = (ScaleOut("q", 10.0, 2, 3, 9.0, 0.5),)
    taught_more = replace(past, removed=True, promised={"q": 70.0}, room=1.2, scale_outs=known)
    again = replace(record, past=taught_more)
    assert read_record(again.write()) == again
