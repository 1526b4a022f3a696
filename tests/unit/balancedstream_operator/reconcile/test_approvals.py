"""What Advise proposes is carried out once somebody approves it, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from supervised import Scene, Shown, conditions

from balancedstream.core.samples import BatchSample, StageSample
from balancedstream_operator.api.annotations import APPROVE_ANNOTATION, PAUSED_ANNOTATION
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.errors import ClusterError, RefusedError, UnreachableError

LEVEL = dict.fromkeys(range(4), 1.0)


def advised(**spec: Any) -> Scene:
    """A skewed stream that runs, and may only be advised."""
    scene = Scene(balancing={"mode": "Advise"}, scaling={"mode": "Advise"}, **spec)
    scene.run_until_running()
    return scene


def proposal(scene: Scene) -> str:
    found = (scene.resource["status"].get("proposal") or {}).get("id", "")
    assert isinstance(found, str)
    return found


def approve(scene: Scene, value: str) -> None:
    scene.resource["metadata"].setdefault("annotations", {})[APPROVE_ANNOTATION] = value


def asked(scene: Scene) -> bool:
    return APPROVE_ANNOTATION in scene.resource["metadata"].get("annotations", {})


def refusal(done: Shown) -> str:
    """Why an approval was refused; the status, a decision and an event say so."""
    answer, decision = done.status["approval"], done.status["decisions"][0]
    assert answer["result"] == "Refused"
    assert decision["kind"] == "refuse"
    assert decision["reason"] == answer["message"]
    assert [(e.message, e.warning) for e in done.events if e.reason == "ApprovalRefused"] == [
        (answer["message"], True)
    ]
    return str(answer["message"])


def test_an_approved_proposal_is_carried_out_once_and_reported_with_its_effect() -> None:
    scene = advised()
    approved = proposal(scene)
    assert approved.startswith("1-")
    assert scene.cluster.plan() is None
    approve(scene, approved)
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.epoch == 1
    assert plan.owners("q", 0)[0] != plan.owners("q", 0)[1], "the two heavy ones are apart"
    assert not asked(scene), "and the annotation is gone"
    answer = done.status["approval"]
    assert (answer["id"], answer["result"]) == (approved, "CarriedOut")
    assert done.status["decisions"][0]["kind"] == "move"
    assert f"proposal {approved} was approved" in done.status["decisions"][0]["reason"]
    assert {e.reason for e in done.events} >= {"Approved", "Moving"}
    scene.finish_batches()
    done = scene.run_pass()
    assert "5 batches later" in done.status["decisions"][0]["effect"]
    assert conditions(done)["Balanced"] == ("True", "Even")
    assert not proposal(scene)
    scene.finish_batches({0: 9.0, 1: 0.1, 2: 9.0, 3: 0.1})
    scene.placement = dict.fromkeys(range(4), "1")
    scene.finish_batches({0: 9.0, 1: 0.1, 2: 9.0, 3: 0.1})
    done = scene.run_pass()
    assert done.status["planEpoch"] == 1, "what comes next is advice again"


def test_a_proposal_says_what_it_is_in_the_status_and_keeps_its_id_while_it_stays() -> None:
    scene = advised()
    first = scene.resource["status"]["proposal"]
    assert "would move" in first["reason"]
    scene.finish_batches({0: 4.5, 1: 3.5, 2: 0.5, 3: 0.5})
    scene.run_pass()
    assert scene.resource["status"]["proposal"] == first, "other figures, the same proposal"
    ahead = {**first, "time": "2099-01-01T00:00:00Z"}
    scene.resource["status"]["proposal"] = ahead
    scene.finish_batches()
    scene.run_pass()
    assert scene.resource["status"]["proposal"]["time"] < "2099", "a clock was wrong"
    scene.passes = scene.make_passes()
    scene.finish_batches()
    done = scene.run_pass()
    assert [d["kind"] for d in done.status["decisions"]] == ["advise"], "also after a restart"
    scene.placement = {0: "1", 1: "2", 2: "1", 3: "2"}
    scene.finish_batches(LEVEL)
    scene.run_pass()
    assert not proposal(scene)


def test_another_load_when_it_is_approved_changes_where_partitions_go_to() -> None:
    scene = advised()
    approve(scene, proposal(scene))
    scene.finish_batches({0: 0.5, 1: 0.5, 2: 4.0, 3: 3.0})
    scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.owners("q", 0)[2] != plan.owners("q", 0)[3]


def test_an_approval_of_an_older_proposal_is_refused_with_the_one_of_now() -> None:
    scene = advised()
    approve(scene, "1-abcdef")
    said = refusal(scene.run_pass())
    assert f"out of date; the present proposal is {proposal(scene)}: would move" in said
    assert "Nothing was changed" in said
    assert scene.cluster.plan() is None
    assert not asked(scene)
    done = scene.run_pass()
    assert [d["kind"] for d in done.status["decisions"]] == ["refuse", "advise"], "once"


def test_a_carried_out_proposal_cannot_be_approved_again() -> None:
    scene = advised()
    approved = proposal(scene)
    approve(scene, approved)
    scene.run_pass()
    scene.finish_batches()
    approve(scene, approved)
    done = scene.run_pass()
    assert done.status["approval"]["result"] == "CarriedOut", "the answer stays"
    assert done.status["planEpoch"] == 1
    assert not asked(scene)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"balancing": {}, "scaling": {}}, "out of date", id="mode Auto acts itself"),
        pytest.param(
            {"balancing": {"mode": "Off"}, "scaling": {"mode": "Off"}},
            "the operator proposes nothing like it now",
            id="mode Off",
        ),
        pytest.param({"executors": {"min": 3, "max": 2}}, "the stream is stalled", id="invalid"),
    ],
)
def test_an_approval_that_nothing_can_come_of_is_refused(change: dict[str, Any], says: str) -> None:
    scene = advised()
    approved = proposal(scene)
    if says == "out of date":
        # What was proposed is done by now.
        scene.resource["spec"].update(change)
        scene.run_pass()
    scene.resource["spec"].update(change)
    approve(scene, approved)
    assert says in refusal(scene.run_pass())
    assert not asked(scene)


def test_an_approval_without_measurements_is_refused_and_nothing_is_done_later() -> None:
    scene = advised()
    approve(scene, proposal(scene))
    scene.measured = "Prometheus at http://prometheus cannot be queried: refused"
    assert "the operator cannot decide now: Prometheus at" in refusal(scene.run_pass())
    scene.finish_batches()
    scene.run_pass()
    assert scene.cluster.plan() is None


def test_an_approval_of_a_paused_stream_is_refused() -> None:
    scene = advised()
    approve(scene, proposal(scene))
    scene.resource["metadata"]["annotations"][PAUSED_ANNOTATION] = "load test"
    assert "paused (load test); resume it first" in refusal(scene.run_pass())
    assert scene.cluster.plan() is None


def test_a_refusal_is_reported_by_whoever_takes_the_annotation_away() -> None:
    scene = advised()
    stale = dict(scene.resource)
    approve(scene, "1-abcdef")
    stale["metadata"] = {**scene.resource["metadata"]}
    refusal(scene.run_pass())
    # The watch has not told of it yet.
    scene.now_s += 15.0
    done = scene.show(stale | {"status": scene.resource["status"]})
    assert [d["kind"] for d in done.status["decisions"]] == ["refuse", "advise"]


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_annotation_that_cannot_be_taken_away_for_now_is_answered_once_all_the_same(
    monkeypatch: pytest.MonkeyPatch, carried_out: bool
) -> None:
    scene = advised()
    approve(scene, proposal(scene) if carried_out else "1-abcdef")

    def fail(stream: Stream, name: str, value: str) -> bool:
        message = "the API server cannot be reached"
        raise UnreachableError(message)

    with monkeypatch.context() as broken:
        broken.setattr(scene.cluster, "take_annotation", fail)
        if carried_out:
            done = scene.run_pass()
            assert done.status["approval"]["result"] == "CarriedOut"
        else:
            with pytest.raises(ClusterError):
                scene.run_pass()
    assert asked(scene)
    scene.passes = scene.make_passes()
    scene.finish_batches()
    done = scene.run_pass()
    assert not asked(scene)
    assert done.status["approval"]["result"] == ("CarriedOut" if carried_out else "Refused")
    kinds = [d["kind"] for d in done.status["decisions"]]
    assert kinds == (["move", "advise"] if carried_out else ["refuse", "advise"])


def test_an_operator_that_dies_between_plan_and_status_is_answered_for_by_the_next() -> None:
    scene = advised()
    before, approved = dict(scene.resource["status"]), proposal(scene)
    annotations = {APPROVE_ANNOTATION: approved}
    approve(scene, approved)
    scene.run_pass()
    plan = scene.cluster.plan()
    scene.resource["status"], scene.resource["metadata"]["annotations"] = before, annotations
    scene.passes = scene.make_passes()
    done = scene.run_pass()
    answer = done.status["approval"]
    assert (answer["id"], answer["result"]) == (approved, "CarriedOut")
    assert "plan 1 carries it out" in answer["message"]
    assert not asked(scene)
    assert scene.cluster.plan() == plan


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_operator_that_may_not_take_annotations_away_answers_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, carried_out: bool
) -> None:
    scene = advised()
    approve(scene, proposal(scene) if carried_out else "1-abcdef")

    def forbid(stream: Stream, name: str, value: str) -> bool:
        message = "the API server did not remove annotation: forbidden"
        raise RefusedError(message)

    monkeypatch.setattr(scene.cluster, "take_annotation", forbid)
    for _ in range(3):
        done = scene.run_pass()
        assert conditions(done)["PassFailed"][0] == "False"
        scene.finish_batches()
    kinds = [d["kind"] for d in done.status["decisions"]]
    assert kinds == (["move", "advise"] if carried_out else ["refuse", "advise"])


def test_an_approved_number_of_executors_is_asked_for() -> None:
    scene = Scene(scaling={"mode": "Advise"}, balancing={"mode": "Off"})
    scene.run_pass()
    scene.start_driver()
    busy = StageSample("q", 0, "source", 0.0, 16, 19.0 / 16, {"1": 9.5, "2": 9.5})
    batch = BatchSample("q", 0, 0.0, 9.8, 400, interval_s=10.0, backlog_rows=50.0)
    scene.finish_stateless_batches(busy, batch)
    scene.run_pass()
    assert "would scale" in scene.resource["status"]["proposal"]["reason"]
    approve(scene, proposal(scene))
    done = scene.run_pass()
    assert done.status["decisions"][0]["kind"] == "scale"
    assert done.status["desiredExecutors"] == 3
    plan = scene.cluster.plan()
    assert plan is not None
    assert len(plan.executors) == 3
