"""What goes wrong, and how: each kind of fault begins, and most of them end again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from balancedstream.core.wire.objects import (
    ANSWER_KEY,
    PLAN_KEY,
    answer_name,
    plan_name,
)
from balancedstream_operator.api.annotations import (
    APPROVE_ANNOTATION,
    PAUSED_ANNOTATION,
    RESTART_ANNOTATION,
)
from balancedstream_operator.api.resource import KIND, driver_pod_name
from world.operator_model import OperatorProcess
from world.schedules import Fault
from world.tenants import (
    create_again,
    hold_deletion,
    jump_clock,
    lose_definition,
    lose_namespace,
    nest_deep,
)

if TYPE_CHECKING:
    from world.worlds import World

Act = Callable[["World", Fault, random.Random], None]


def begin_fault(world: World, fault: Fault, chance: random.Random) -> None:
    """Lets a fault happen, at the present time."""
    world.oracles.note(f"{fault}")
    if fault.kind in _WEATHER:
        _change_weather(world, fault)
    else:
        _ACTS[fault.kind](world, fault, chance)


_KINDS = ("PodDisruptionBudget", "Role", "StatefulSet", "Service")
"""Of children."""

_WEATHER: dict[str, tuple[str, Callable[[float], Any]]] = {
    "api outage": ("api_down", lambda _: True),
    "api errors": ("api_errors", lambda size: 0.1 + 0.6 * size),
    "api answers lost": ("api_lost", lambda size: 0.1 + 0.6 * size),
    "api throttles": ("api_throttles", lambda _: True),
    "rights gone": ("forbidden", lambda _: True),
    "driver's clock jumps": ("driver_clock_off_s", lambda size: (size - 0.5) * 20_000.0),
    "child refused": ("refused_kind", lambda size: _KINDS[int(size * len(_KINDS))]),
    "stale lists": ("api_stale_s", lambda size: 5.0 + 40.0 * size),
    "late watch": ("watch_lag_s", lambda size: 5.0 + 60.0 * size),
    "watch loses": ("watch_loss", lambda size: 0.3 + 0.7 * size),
    "watch repeats": ("watch_repeats", lambda size: 0.3 + 0.7 * size),
    "driver cut off": ("driver_cut", lambda _: True),
    "controllers stalled": ("controllers_stalled", lambda _: True),
    "node lost": ("node_lost", lambda _: True),
    "no node fits": ("unschedulable", lambda _: True),
    "quota": ("quota", lambda size: round(4 * size)),
    "slow start": ("slow_start", lambda size: 2.0 + 4.0 * size),
    "prometheus down": ("prometheus_down", lambda _: True),
    "scrapes lost": ("scrape_loss", lambda size: 0.2 + 0.7 * size),
    "samples lost": ("sample_loss", lambda size: 0.01 + 0.2 * size**2),
    "late samples": ("ingestion_lag_s", lambda size: 10.0 + 60.0 * size),
    "jobs evicted": ("job_evictions", lambda size: 0.3 + 0.7 * size),
    "jobs refused": ("job_refusals", lambda size: 0.3 + 0.7 * size),
    "loads fail": ("preparation_failures", lambda size: 0.2 + 0.6 * size),
}
"""Kind to what of the weather changes, and to what by the fault's size."""


def _change_weather(world: World, fault: Fault) -> None:
    name, value_of = _WEATHER[fault.kind]
    setattr(world.weather, name, value_of(fault.size))
    world.call_in(fault.length_s, lambda: world.weather.clear(name))


def _kill_operator(world: World, fault: Fault, chance: random.Random) -> None:
    """At once, or with one of its next writes."""
    operator = world.find_operator()
    if operator is None:
        return
    if fault.size < 0.2:
        operator.kill()
        world.restart_operator(operator)
    else:
        operator.cluster.kill_after = operator.cluster.writes + 1 + round(12 * fault.size**2)


def _add_operator(world: World, fault: Fault, chance: random.Random) -> None:
    """One more for a while, as in an update; then one of them is gone, at once or in peace."""
    world.add_operator(chance)
    first = fault.size < 0.5

    def end() -> None:
        if len(world.operators) > 1:
            operator = world.operators.pop(0 if first else -1)
            if chance.random() < 0.5:
                operator.release()
            operator.kill()

    world.call_in(fault.length_s, end)


def _cut_operator(world: World, fault: Fault, chance: random.Random) -> None:
    """It reaches nothing for a while, and another one takes over; then both are there, and one."""
    operator = world.find_operator()
    if operator is None:
        return
    operator.cut(True)
    world.call_in(fault.length_s, partial(operator.cut, False))
    if world.schedule.operators == 1:
        later = replace(fault, length_s=fault.length_s + 40.0, size=0.0)
        _add_operator(world, later, chance)


def _show_old_list(world: World, fault: Fault, chance: random.Random) -> None:
    """A server that is behind lists streams to an operator that starts, or whose watch broke."""
    operator = world.find_operator()
    if operator is None:
        return
    world.weather.list_age_s = 180.0 * fault.size
    if chance.random() < 0.5:
        operator.kill()
        world.restart_operator(operator)
    else:
        operator.list_streams()

    def catch_up() -> None:
        world.weather.clear("list_age_s")
        for present in world.operators:
            present.list_streams()

    world.call_in(fault.length_s, catch_up)


def _shift_clock(world: World, fault: Fault, chance: random.Random) -> None:
    """The operator's clock is ahead or behind, until somebody sets it."""
    operator = world.find_operator()
    if operator is None:
        return
    operator.clock_off_s = 120.0 * (fault.size - 0.5)

    def mend() -> None:
        operator.clock_off_s = 0.0

    world.call_in(fault.length_s, mend)


def _interrupt_pass(world: World, fault: Fault, chance: random.Random) -> None:
    """Something happens between two calls of a pass."""
    acts: list[Callable[[], None]] = [
        lambda: _edit_limits(world, fault, chance),
        world.nodes.crash,
        lambda: _lose_plan(world, fault, chance),
        lambda: world.nodes.delete_pod(driver_pod_name(world.stream)),
        lambda: _wipe_status(world, fault, chance),
        lambda: _pass_of_another(world, chance),
        lambda: _pass_of_another(world, chance),
    ]
    operator = world.find_operator()
    if operator is not None:
        number = operator.cluster.calls + chance.randrange(1, 30)
        operator.cluster.before_call[number] = chance.choice(acts)


def _pass_of_another(world: World, chance: random.Random) -> None:
    """A whole pass of an operator that has just started, as if the first one had been paused."""
    other = OperatorProcess(world, random.Random(chance.random()))
    other.pass_now()
    other.pass_now()
    other.kill()


def _wipe_status(world: World, fault: Fault, chance: random.Random) -> None:
    world.api.change(KIND, world.stream.name, status={})


def _lose_plan(world: World, fault: Fault, chance: random.Random) -> None:
    """Somebody deletes, spoils or restores the plan."""
    name = plan_name(world.stream.name)
    found = world.api.get("ConfigMap", name)
    if found is None:
        return
    data = dict(found.get("data") or {})
    match chance.randrange(5):
        case 0:
            world.api.remove("ConfigMap", name)
        case 1:
            world.api.change("ConfigMap", name, data={**data, PLAN_KEY: "rubbish"})
        case 2:
            data.pop("record.json", None)
            world.api.change("ConfigMap", name, data=data)
        case 3:
            world.api.change("ConfigMap", name, data={})
        case 4:
            old = world.api.get_old("ConfigMap", name, 200.0 * chance.random())
            if old is not None:
                world.api.change("ConfigMap", name, data=dict(old.get("data") or {}))


def _lose_answer(world: World, fault: Fault, chance: random.Random) -> None:
    name = answer_name(world.stream.name)
    if chance.random() < 0.5:
        world.api.remove("ConfigMap", name)
    else:
        world.api.change("ConfigMap", name, data={ANSWER_KEY: "rubbish"})


def _delete_child(world: World, fault: Fault, chance: random.Random) -> None:
    kinds = {"Service", "Role", "StatefulSet", "ConfigMap", "PodDisruptionBudget"}
    children = [key for key in sorted(world.api.objects) if key[0] in kinds]
    if children:
        world.api.remove(*chance.choice(children))


def _take_name(world: World, fault: Fault, chance: random.Random) -> None:
    """Somebody deletes a child, and has an object of their own with its name for some time."""
    kinds, plan = {"Service", "Role", "PodDisruptionBudget"}, plan_name(world.stream.name)
    children = [
        (kind, name)
        for (kind, name), found in sorted(world.api.objects.items())
        if (kind in kinds or name == plan) and found["metadata"].get("ownerReferences")
    ]
    if not children:
        return
    kind, name = chance.choice(children)
    world.api.remove(kind, name)
    world.api.put({"kind": kind, "metadata": {"name": name, "labels": {"team": "other"}}})
    world.call_in(fault.length_s, lambda: world.api.remove(kind, name))


def _crash_driver(world: World, fault: Fault, chance: random.Random) -> None:
    world.nodes.crash()


def _evict_driver(world: World, fault: Fault, chance: random.Random) -> None:
    world.nodes.delete_pod(driver_pod_name(world.stream))


def _lose_executors(world: World, fault: Fault, chance: random.Random) -> None:
    for _ in range(1 + round(2 * fault.size)):
        if world.driver is not None:
            world.driver.application.lose_executor("its node is gone")


def _lose_samples(world: World, fault: Fault, chance: random.Random) -> None:
    world.prometheus.lose_all()


def _edit(world: World, **parts: Any) -> None:
    resource = world.resource()
    if resource is not None:
        world.api.change(KIND, world.stream.name, spec={**resource["spec"], **parts})


def _edit_limits(world: World, fault: Fault, chance: random.Random) -> None:
    least = chance.randrange(1, 4)
    most = least + chance.randrange(4)
    fixed = chance.choice((0, 0, 0, chance.randrange(1, 7)))
    _edit(world, executors={"min": least, "max": most, "fixed": fixed})


def _edit_image(world: World, fault: Fault, chance: random.Random) -> None:
    _edit(world, image=f"clicks:{chance.randrange(2, 9)}")


def _edit_partitions(world: World, fault: Fault, chance: random.Random) -> None:
    """Another number, and half of the time somebody thinks better of it."""
    before = (world.resource() or {}).get("spec", {}).get("partitions")
    _edit(world, partitions=chance.choice((24, 48, 96, 120)))
    if fault.size < 0.3:
        other = before if before and fault.size < 0.15 else 240
        world.call_in(fault.length_s, lambda: _edit(world, partitions=other))


def _edit_policy(world: World, fault: Fault, chance: random.Random) -> None:
    resource = world.resource()
    if resource is not None:
        modes = ("Auto", "Auto", "Advise", "Off")
        _edit(
            world,
            balancing={"mode": chance.choice(modes)},
            scaling={**resource["spec"].get("scaling", {}), "mode": chance.choice(modes)},
            migration={"budgetSeconds": chance.choice((0.001, 0.5, 1.0, 3600.0))},
        )


def _break_spec(world: World, fault: Fault, chance: random.Random) -> None:
    """A spec that is refused, until somebody reverts it."""
    resource = world.resource()
    if resource is None:
        return
    before = resource["spec"]["executors"]
    if before["min"] > before["max"]:
        return
    _edit(world, executors={**before, "min": before["max"] + 1})
    world.call_in(fault.length_s, lambda: _edit(world, executors=before))


def _suspend(world: World, fault: Fault, chance: random.Random) -> None:
    _edit(world, suspend=True)
    if fault.size < 0.9:
        world.call_in(fault.length_s, lambda: _edit(world, suspend=False))


def _annotate(world: World, name: str, value: str | None) -> None:
    resource = world.resource()
    if resource is None:
        return
    annotations = dict(resource["metadata"].get("annotations") or {})
    annotations.pop(name, None)
    if value is not None:
        annotations[name] = value
    world.api.change(KIND, world.stream.name, metadata={"annotations": annotations})


def _pause(world: World, fault: Fault, chance: random.Random) -> None:
    _annotate(world, PAUSED_ANNOTATION, "maintenance")
    world.call_in(fault.length_s, lambda: _annotate(world, PAUSED_ANNOTATION, None))


def _ask_restart(world: World, fault: Fault, chance: random.Random) -> None:
    _annotate(world, RESTART_ANNOTATION, str(chance.random()))


def _approve(world: World, fault: Fault, chance: random.Random) -> None:
    proposal = ((world.resource() or {}).get("status") or {}).get("proposal") or {}
    _annotate(world, APPROVE_ANNOTATION, proposal.get("id") or "7-abcdef")


def _recreate(world: World, fault: Fault, chance: random.Random) -> None:
    """Deletes the stream, and makes one of the same name, soon or late."""
    if world.resource() is None:
        return
    world.api.remove(KIND, world.stream.name)
    world.call_in(fault.length_s * fault.size, partial(create_again, world))


_ACTS: dict[str, Act] = {
    "operator killed": _kill_operator,
    "two operators": _add_operator,
    "operator cut off": _cut_operator,
    "old list": _show_old_list,
    "clock off": _shift_clock,
    "pass interrupted": _interrupt_pass,
    "status lost": _wipe_status,
    "plan lost": _lose_plan,
    "answer lost": _lose_answer,
    "child deleted": _delete_child,
    "name taken": _take_name,
    "driver crashes": _crash_driver,
    "driver evicted": _evict_driver,
    "executors lost": _lose_executors,
    "prometheus empty": _lose_samples,
    "limits edited": _edit_limits,
    "image edited": _edit_image,
    "partitions edited": _edit_partitions,
    "partitions edited again": _edit_partitions,
    "policy edited": _edit_policy,
    "spec broken": _break_spec,
    "suspended": _suspend,
    "paused": _pause,
    "restart asked": _ask_restart,
    "approved": _approve,
    "recreated": _recreate,
    "deletion held": hold_deletion,
    "namespace gone": lose_namespace,
    "definition gone": lose_definition,
    "clock jumps": jump_clock,
    "nested deep": nest_deep,
}

KINDS = (*_WEATHER, *_ACTS)
"""All kinds of faults."""
