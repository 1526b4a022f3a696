"""What happens to a namespace, to rights, to the definition, and to clocks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from balancedstream_operator.api.resource import KIND
from balancedstream_operator.api.status import format_time
from world.schedules import Fault

if TYPE_CHECKING:
    from world.worlds import World

DEEP = 200
"""Levels of a pod template that nobody needs."""


def create_again(world: World) -> None:
    """A user applies the stream again, unless somebody else did."""
    if world.resource() is None:
        world.create_stream()


def _remove_children(world: World) -> None:
    for kind, name in list(world.api.objects):
        if kind == "Pod":
            world.nodes.delete_pod(name)
        elif kind not in {KIND, "Lease"}:
            world.api.remove(kind, name)


def hold_deletion(world: World, fault: Fault, chance: random.Random) -> None:
    """The stream is deleted, and somebody's finalizer holds it; then it is made anew."""
    resource = world.resource()
    if resource is None or resource["metadata"].get("deletionTimestamp"):
        return
    uid = resource["metadata"]["uid"]
    deleted = {"deletionTimestamp": format_time(world.now_s), "finalizers": ["example.com/hold"]}
    world.api.change(KIND, world.stream.name, metadata=deleted)
    if chance.random() < 0.5:
        # In the foreground.
        world.call_in(chance.uniform(1.0, 20.0), lambda: _remove_children(world))

    def end() -> None:
        there = world.resource()
        if there is not None and there["metadata"]["uid"] == uid:
            world.api.remove(KIND, world.stream.name)
            create_again(world)

    world.call_in(fault.length_s, end)


def lose_namespace(world: World, fault: Fault, chance: random.Random) -> None:
    """The namespace vanishes, and the operator's Role with it; both come again, with the stream."""
    world.weather.forbidden = True
    world.api.remove(KIND, world.stream.name)
    _remove_children(world)

    def end() -> None:
        world.weather.clear("forbidden")
        create_again(world)

    world.call_in(fault.length_s, end)


def lose_definition(world: World, fault: Fault, chance: random.Random) -> None:
    """Somebody deletes the definition, and all streams with it, and installs it again."""
    world.weather.definition_gone = True
    world.api.remove(KIND, world.stream.name)

    def end() -> None:
        world.weather.clear("definition_gone")
        create_again(world)

    world.call_in(fault.length_s, end)


def jump_clock(world: World, fault: Fault, chance: random.Random) -> None:
    """The operator's clock jumps by hours, and back."""
    operator = world.find_operator()
    if operator is None:
        return
    operator.clock_off_s = chance.choice((-1.0, 1.0)) * (600.0 + 80_000.0 * fault.size)

    def mend() -> None:
        operator.clock_off_s = 0.0

    world.call_in(fault.length_s, mend)


def nest_deep(world: World, fault: Fault, chance: random.Random) -> None:
    """Somebody writes a pod template that is nested deep, and takes it out again."""
    resource = world.resource()
    if resource is None or "driver" in resource["spec"]:
        return
    deep: object = 1
    for _ in range(DEEP):
        deep = {"a": deep}
    spec = {**resource["spec"], "driver": {"podTemplate": {"spec": deep}}}
    world.api.change(KIND, world.stream.name, spec=spec)

    def end() -> None:
        there = world.resource()
        if there is not None:
            kept = {name: part for name, part in there["spec"].items() if name != "driver"}
            world.api.change(KIND, world.stream.name, spec=kept)

    world.call_in(fault.length_s, end)
