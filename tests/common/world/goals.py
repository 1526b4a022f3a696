"""The desired state of a stream: what of it is missing, and what must not change any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from balancedstream.core.decisions import raise_minimum
from balancedstream.core.policy import Policy
from balancedstream.core.wire.objects import ANSWER_KEY, PLAN_KEY, answer_name, plan_name
from balancedstream.core.wire.plan import Answer, parse_answer
from balancedstream.errors import BalancedStreamError
from balancedstream_operator.api.annotations import read_requests
from balancedstream_operator.api.resource import driver_name, driver_pod_name
from balancedstream_operator.api.spec import StreamSpec, read_spec
from balancedstream_operator.children.fingerprint import fingerprint_spec
from balancedstream_operator.children.pods import SPEC_ANNOTATION
from balancedstream_operator.observe.floors import round_up
from world.oracles import find_limits, is_running, read_plan
from world.spark_model import BACKLOG_S, Application

if TYPE_CHECKING:
    from world.worlds import World

SUSPENDED = {"Suspended": "True", "Ready": "False", "Stalled": "False", "PassFailed": "False"}

ALWAYS = {
    "Accepted": "True",
    "MetricsAvailable": "True",
    "Fallback": "False",
    "Suspended": "False",
    "Paused": "False",
    "PlanRefused": "False",
    "PassFailed": "False",
    "Excluded": "False",
}
"""Conditions of a stream that is not suspended; those that are missing count as False."""

CARRIED = {"Ready": "True", "Reconciling": "False", "Stalled": "False", "Running": "True"}
"""The same where executors carry the load; otherwise batches get longer and longer."""


def find_missing(world: World) -> tuple[list[str], object]:
    """What the spec asks for and is not there; and what must not change any more."""
    resource = world.resource()
    if resource is None:
        return ["the stream is deleted"], None
    spec, status = read_spec(resource["spec"]), resource.get("status") or {}
    pod = world.api.get("Pod", driver_pod_name(world.stream))
    said = {c["type"]: c["status"] for c in status.get("conditions", ())}
    generation = resource["metadata"]["generation"]
    state: list[object] = [generation, pod and pod["metadata"]["uid"], sorted(said.items())]
    wrong = []
    if status.get("observedGeneration") != generation:
        wrong.append(f"observedGeneration {status.get('observedGeneration')} != {generation}")
    found = world.api.get("StatefulSet", driver_name(world.stream))
    if found is None or found["metadata"]["ownerReferences"][0]["uid"] != world.stream.uid:
        return [*wrong, "no StatefulSet of this stream"], state
    if spec.suspend:
        if pod is not None:
            wrong.append("suspended, and there is a pod")
        return [*wrong, *_compare(said, SUSPENDED)], state
    driver = world.driver
    if pod is None or driver is None or not is_running(pod):
        return [*wrong, "no driver runs"], state
    made_for = (pod["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION)
    if made_for != fingerprint_spec(spec, read_requests(resource).restart):
        wrong.append("the driver is of an older spec")
    wrong += _compare(said, ALWAYS)
    wrong += _judge_partitions(world, spec, status, said)
    if not _carries(world, spec, status):
        return wrong, None
    wrong += _compare(said, CARRIED)
    wrong += _judge_plan(world, status)
    wrong += _judge_executors(world, spec, status, driver.application)
    if world.trace.rates[-1]:
        wrong += _judge_balance(status, driver.application)
    return wrong, [*state, status.get("planEpoch"), sorted(driver.application.executors())]


def _compare(said: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    return [
        f"{kind} is {said.get(kind)}"
        for kind, state in expected.items()
        if said.get(kind, "False") != state
    ]


def _carries(world: World, spec: StreamSpec, status: Mapping[str, Any]) -> bool:
    """Whether as many executors as there may be, with even loads, have time for all rows."""
    scaling, job = find_limits(spec, world.schedule.cap), world.job
    most = scaling.max_executors
    if spec.policy.balance.mode != "auto":
        return False
    if scaling.mode != "auto":
        most = status.get("desiredExecutors", 0)
    tasks_s = job.task_s * (job.splits + job.partitions) / job.trigger_s
    of_query = world.trace.rates[-1] * job.row_s + tasks_s
    return 0.6 * most > of_query * len(world.schedule.queries)


def _judge_partitions(
    world: World, spec: StreamSpec, status: Mapping[str, Any], said: Mapping[str, str]
) -> Iterator[str]:
    """Whether the checkpoint has as many state partitions as is said, and as somebody asked for."""
    there = status.get("partitions")
    # What the checkpoint of a stream before it has, nobody tells a new one.
    if there != world.jobs.partitions and world.streams == 1:
        yield f"{there} state partitions are said, the checkpoint has {world.jobs.partitions}"
    if not all(progress.batches for progress in world.checkpoints.values()):
        return  # Without a committed batch there is no state to write anew.
    if said.get("Repartitioning", "False") != "False":
        yield f"still at {(status.get('repartition') or {}).get('message')}"
    if spec.partitions not in {None, there} and said.get("PartitionsAsAsked") != "False":
        yield f"{spec.partitions} state partitions are asked for, and there are {there}"


def _judge_plan(world: World, status: Mapping[str, Any]) -> Iterator[str]:
    """Whether the plan, its answer and the status are of one epoch."""
    found = world.api.get("ConfigMap", plan_name(world.stream.name)) or {}
    plan = read_plan((found.get("data") or {}).get(PLAN_KEY, ""))
    epoch = plan.epoch if plan else 0
    answer = _read_answer(world)
    if answer is None or answer.epoch != epoch:
        yield f"plan {epoch} is answered with {answer}"
    if status.get("planEpoch", 0) != epoch:
        yield f"planEpoch {status.get('planEpoch')} != {epoch}"
    desired = status.get("desiredExecutors")
    if plan and len(plan.executors) != desired:
        yield f"the plan has {len(plan.executors)} executors, desired are {desired}"


def _judge_executors(
    world: World, spec: StreamSpec, status: Mapping[str, Any], application: Application
) -> Iterator[str]:
    """Whether there are as many as are desired, and Spark keeps it so."""
    limits, live = find_limits(spec, world.schedule.cap), application.executors()
    if spec.executors.min_query:
        floor = round_up(float(spec.executors.min_query))
        limits = raise_minimum(Policy(scaling=limits), floor).scaling
    most = spec.policy.scaling.max_executors
    desired = status.get("desiredExecutors")
    if not len(live) == application.asked == application.target == desired:
        yield (
            f"of {desired} executors {len(live)} are there, {application.asked} were asked for, "
            f"and Spark keeps {application.target}"
        )
    if not limits.min_executors <= len(live) <= most:
        yield f"{len(live)} executors, not {limits.min_executors} to {most}"
    if application.draining:
        yield f"{application.draining} are being drained"
    reasons = [c["reason"] for c in status.get("conditions", ())]
    if "ExecutorsPending" in reasons:
        yield "executors are said to be missing"
    idle = not world.trace.rates[-1]
    if idle and limits.mode == "auto" and len(live) > limits.min_executors:
        yield f"{len(live)} executors have nothing to do"


def _judge_balance(status: Mapping[str, Any], application: Application) -> Iterator[str]:
    """Whether the load is even, or moves do not pay; nothing moves any more, and no rows wait."""
    said = {c["type"]: (c["status"], c["message"]) for c in status.get("conditions", ())}
    live = application.executors()
    if said.get("Migrating", ("", ""))[0] != "False":
        yield "partitions move"
    balanced, why = said.get("Balanced", ("", ""))
    if balanced != "True" and "too little to earn back the restore" not in why:
        yield f"Balanced is {balanced or 'unknown'}: {why}"
    if status.get("executors") != len(live):
        yield f"executors is {status.get('executors')}, and there are {len(live)}"
    # A partition that is too much for one executor keeps the others waiting, whatever is done.
    is_stuck = said.get("Unsplittable", ("", ""))[0] == "True"
    if not is_stuck and (drain_s := application.drain_s(len(live))) > BACKLOG_S:
        yield f"rows wait that need {drain_s:.0f} s"


def _read_answer(world: World) -> Answer | None:
    found = world.api.get("ConfigMap", answer_name(world.stream.name)) or {}
    try:
        return parse_answer((found.get("data") or {}).get(ANSWER_KEY, ""))
    except BalancedStreamError:
        return None
