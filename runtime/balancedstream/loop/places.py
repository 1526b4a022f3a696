"""Who takes the places that a plan has for executors that are still to be started."""

from __future__ import annotations

from collections.abc import Iterable

from balancedstream.core.samples import OperatorId
from balancedstream.core.wire.plan import NEW_EXECUTOR, Plan


class Places:
    """The places of one plan, and the executors that took those without a name.

    Args:
        plan: in force.
        live: executors that there are.

    Attributes:
        plan: as given.

    >>> places = Places(Plan(1, ("a", "+1"), {("q", 0): (0, 1)}), ["a"])
    >>> places.owners(("q", 0)), places.give("b"), places.owners(("q", 0))
    ({0: 'a', 1: '+1'}, True, {0: 'a', 1: 'b'})
    """

    def __init__(self, plan: Plan, live: Iterable[str]) -> None:
        self.plan = plan
        self._taken: dict[str, str] = {}
        for executor in sorted(live):
            self.give(executor)

    def give(self, executor: str) -> bool:
        """Whether there was a place for an executor that the plan does not name."""
        if executor in {*self.plan.executors, *self._taken.values()}:
            return False
        names = [name for name in self.plan.executors if name.startswith(NEW_EXECUTOR)]
        free = [name for name in names if name not in self._taken]
        if free:
            self._taken[free[0]] = executor
        return bool(free)

    def owners(self, operator: OperatorId) -> dict[int, str]:
        """Executor of each placed partition of an operator; one that is not there has a `+`."""
        owners = self.plan.owners(*operator).items()
        return {partition: self._taken.get(owner, owner) for partition, owner in owners}
