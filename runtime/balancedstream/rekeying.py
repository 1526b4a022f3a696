"""Makes the routes of plans come true: keys of balanced operators go to other state partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from balancedstream.core.epochs import Epoch, Wish
from balancedstream.core.keys import HASHED, name_key
from balancedstream.core.observations import KeySample
from balancedstream.core.plan import MAX_ROUTES, Plan, Route
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.errors import BalancedStreamError, InvalidInputError
from balancedstream.journal import Journal
from balancedstream.keyed.control import KeyControl, find_controls, forget_controls

OPERATORS = ("TransformWithState", "FlatMapGroupsInPandasWithState")
"""Begin Spark's names of the operators whose keys can be balanced."""

HOTTEST = 20
"""So many keys a batch are told of: the ones that matter for balance."""

MOST_NAMED = 5
"""So many of the keys that are not known are named in a note."""

SWITCH_BATCHES = 3
"""A key needs a batch to be asked for and one to arrive, and one may be under way already."""

PATIENCE_BATCHES = 10
"""A key whose state does not come in so many batches is left where it is, with the reason."""

GIVEN_UP_BATCHES = 1_000
"""After so many it may be asked for again: what kept it from moving may be over."""


@dataclass(slots=True)
class _Query:
    """What is known of the keys of one query that runs.

    Attributes:
        operator: id of its balanced operator.
        partitions: state partitions that this has.
        last_batch: the last one that finished.
        samples: the hot keys of that batch.
        handoffs: how many keys came or went in it, and the seconds that it took.
        epoch: the last one that could be read; None before the first.
        adopted: key to partition, as the checkpoint had them when that counted last.
        wanted: key to partition, as its `KeyControl` was told.
        told: all that it was told with that; None before the first time in this run.
        under_way: key to route, of keys that are not yet where they shall be.
        fixed: those of the hot keys that can never be moved, as rows without a key.
        given_up: (key, partition) that did not come, to the batch since when it is not asked for.
        refused: (key, partition) that cannot be.
        last_arrival: the last batch in which keys changed their partition; None for none.
        progress: the last batch in which a key arrived, or could not yet have done so.
    """

    operator: int
    partitions: int
    last_batch: int = -1
    samples: tuple[KeySample, ...] = ()
    handoffs: tuple[int, float] = (0, 0.0)
    epoch: Epoch | None = None
    adopted: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    told: tuple[dict[str, int], int, int | None] | None = None
    under_way: dict[str, int] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    given_up: dict[tuple[str, int], int] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)
    last_arrival: int | None = None
    progress: int = -1

    def names(self) -> dict[str, str]:
        """Keys that a plan may speak of which knows them hashed only, by that name."""
        routed = self.epoch.routes if self.epoch else ()
        keys = *routed, *self.wanted, *self.under_way, *(hot.key for hot in self.samples)
        return {str(name_key(key, "hashed")): key for key in keys}


class Rekeyer:
    """Realizes routes on one application.

    Args:
        journal: is told what becomes of them.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._planned: tuple[Route, ...] = ()
        self._effective_batch: int | None = None
        self._share = 1
        self._reasons: Mapping[str, str] = {}
        self._queries: dict[str, _Query] = {}
        self._noted: set[str] = set()
        # Queries of which somebody was told that the plan in force has keys nobody knows.
        self._told_of_unknown: set[str] = set()
        # Queries that were told something: a next run of theirs finds it there.
        self._told: set[str] = set()

    @property
    def routes(self) -> tuple[Route, ...]:
        """Those of the plan in force, but for what was given up, and of keys it does not name."""
        adopted = {
            (name, key): partition
            for name, query in self._queries.items()
            for key, partition in query.adopted.items()
        }
        # What a plan says of a key counts more than where the checkpoint has it.
        return _list_routes(adopted | self._find_planned())

    def settling(self) -> set[str]:
        """Queries that have keys which are not yet where they shall be."""
        return {name for name, query in self._queries.items() if query.under_way}

    def samples(self, query: str) -> tuple[KeySample, ...]:
        """The hot keys of a query's last batch; none where its keys stay."""
        return self._queries[query].samples if query in self._queries else ()

    def stuck(self, query: str) -> set[str]:
        """Keys of a query that cannot go elsewhere, whatever they cost, or were given up."""
        if query not in self._queries:
            return set()
        known = self._queries[query]
        return {key for key, _ in known.given_up.keys() | known.refused} | known.fixed

    def coming_batches(self, query: str) -> int:
        """In how many batches all keys that are under way will have arrived, if all goes well."""
        count = len(self._queries[query].under_way) if query in self._queries else 0
        return SWITCH_BATCHES - 1 + math.ceil(count / self._share) if count else 0

    def check(self, plan: Plan) -> None:
        """Refuses routes that cannot be; nothing changes.

        Raises:
            InvalidInputError: a key that is none of its query's, or a partition that this does not
                have; the message names it.
        """
        for route in plan.routes:
            control, query = self._find_control(route.query), self._queries.get(route.query)
            if control is not None and not route.key.startswith(HASHED):
                key = control.encoding.spell(route.key)
                if query is None or query.adopted.get(key) != route.partition:
                    control.encoding.check_movable(key)
            if query is not None and route.partition >= query.partitions:
                message = (
                    f"routes: key {route.key} shall go to partition {route.partition}, and "
                    f"{route.query} has {query.partitions}, counted from 0; nothing changed"
                )
                raise InvalidInputError(message)

    def handoffs(self, query: str) -> tuple[int, float]:
        """How many keys came or went in a query's last batch, and the seconds that it took."""
        return self._queries[query].handoffs if query in self._queries else (0, 0.0)

    def apply(self, plan: Plan, share: int, reasons: Mapping[str, str]) -> None:
        """Begins to realize a plan's routes; what an older one had under way is withdrawn.

        Args:
            plan: all of it, for all queries.
            share: keys that may be handed over in one batch.
            reasons: query to why its keys go elsewhere, for a person.
        """
        self._planned = plan.routes
        self._told_of_unknown.clear()
        self._share = share
        self._reasons = reasons
        self._effective_batch = plan.effective_batch
        if len(plan.routes) >= MAX_ROUTES:
            self._send_home()
        for name, query in self._queries.items():
            self._want(name, query)

    def _send_home(self) -> None:
        """Of adopted keys: only a plan that has no room for more leaves out what it knows of."""
        planned = self._find_planned()
        for name, query in self._queries.items():
            kept = {key for of_query, key in planned if of_query == name} | self.stuck(name)
            query.adopted = {key: p for key, p in query.adopted.items() if key in kept}

    def last_arrival(self, query: str) -> int:
        """The last batch in which keys changed their partition; what was measured before is void.

        Returns:
            -1 where none ever did.
        """
        found = self._queries[query].last_arrival if query in self._queries else None
        return -1 if found is None else found

    def finish_batch(self, event: BatchFinished) -> None:
        """Takes in which keys were hot, and which have arrived."""
        name, batch = event.query, event.sample.batch
        control, operator = self._find_control(name), self._find_operator(event)
        if control is None or operator is None:
            return
        query = self._queries.setdefault(name, _Query(operator.id, operator.partitions))
        query.last_batch = batch
        query.samples = tuple(
            KeySample(name, operator.id, key, partition, batch, busy_s)
            for key, partition, busy_s in control.take_hot_keys(batch, HOTTEST)
        )
        query.fixed = {hot.key for hot in query.samples if not control.encoding.can_move(hot.key)}
        query.handoffs = control.take_handoffs(batch)
        self._journal.add_hot_keys(name, operator.id, query.samples, self.stuck(name))
        try:
            epoch = control.read_epoch(batch)
        except (OSError, BalancedStreamError) as error:
            # The query is right without anybody looking on.
            self._journal.note(f"{name}: where its keys are cannot be seen: {error}")
            return
        begins = query.epoch is None
        query.epoch = epoch
        if begins:
            self._adopt(query, control, epoch)
        retried = [p for p, since in query.given_up.items() if batch - since > GIVEN_UP_BATCHES]
        for place in retried:
            del query.given_up[place]
        # A key that the plan knows hashed only can be told from others once it is hot.
        if begins or retried or name in self._find_hashed():
            self._want(name, query)
        for key, route in list(query.under_way.items()):
            if epoch.route_of(key) == route:
                del query.under_way[key]
                self._journal.settle_key_move(name, key, batch)
        if epoch.batch == batch and epoch.arrivals:
            query.last_arrival = query.progress = batch
        if query.under_way and batch - query.progress >= PATIENCE_BATCHES:
            self._give_up(name, query, control, epoch)
        self._journal.add_keys_under_way(name, len(query.under_way), query.last_arrival)

    def _give_up(self, name: str, query: _Query, control: KeyControl, epoch: Epoch) -> None:
        """Leaves those keys where they are that do not come: asking goes on batch after batch."""
        waiting, wanted = list(query.under_way), query.wanted
        places = [(key, wanted[key]) for key in waiting if key in wanted]
        query.given_up |= dict.fromkeys(places, query.last_batch)
        query.under_way = {}
        query.told = None
        self._adopt(query, control, epoch)
        why = f"their state was not handed over in {PATIENCE_BATCHES} batches"
        self._journal.drop_key_moves(name, waiting, why)
        try:
            control.want(Wish(epoch.routes))
        except (OSError, BalancedStreamError) as error:
            self._journal.note(f"{name}: its keys go on being asked for: {error}")
        self._journal.note(
            f"{name}: {len(waiting)} keys stay where they are, for {why}; no state is lost. A "
            "batch that Spark runs twice (foreachBatch with several actions and no persist()) "
            "keeps keys from moving"
        )

    def _adopt(self, query: _Query, control: KeyControl, epoch: Epoch) -> None:
        """Keys shall be where the checkpoint has them."""
        query.adopted = query.wanted = {
            key: control.encoding.find_partition(key, route, query.partitions)
            for key, route in epoch.routes.items()
        }

    def end_query(self, query: str) -> None:
        """A query is over; its keys stay where its checkpoint has them."""
        forget_controls(query)
        if query in self._queries:
            waiting = self._queries[query].under_way
            self._journal.drop_key_moves(query, waiting, "the query ended")
        # Should it begin again: what was given up is not asked for until a new plan comes.
        self._planned = _list_routes(self._find_planned())
        self._queries.pop(query, None)

    def _find_hashed(self) -> set[str]:
        """Queries of which the plan knows keys by their hash only."""
        return {route.query for route in self._planned if route.key.startswith(HASHED)}

    def _find_planned(self) -> dict[tuple[str, str], int]:
        """(query, key) to partition: the routes of the plan in force, but for what was given up."""
        hashed = self._find_hashed()
        names = {name: query.names() for name, query in self._queries.items() if name in hashed}
        places: dict[tuple[str, str], int] = {}
        for route in self._planned:
            key = names.get(route.query, {}).get(route.key, route.key)
            query = self._queries.get(route.query)
            place = key, route.partition
            if query is None or not (place in query.given_up or place in query.refused):
                places[route.query, key] = route.partition
        return places

    def _want(self, name: str, query: _Query) -> None:
        """Hands a query's routes over, if they are other ones than before."""
        control = self._find_control(name)
        if control is None or query.epoch is None:
            return
        partition_of = self._resolve_places(name)
        tells = partition_of, self._share, self._effective_batch
        if query.told == tells:
            return
        if query.told is None and name not in self._told and query.wanted == partition_of:
            # Nobody but, perhaps, a person has said anything so far.
            return
        epoch, encoding, partitions = query.epoch, control.encoding, query.partitions
        busy_s = {hot.key: hot.busy_s for hot in query.samples}
        # Hybrid handoff asks for keys in this order.
        hottest_first = sorted(partition_of, key=lambda key: -busy_s.get(key, 0.0))
        routes: dict[str, int] = {}
        for key in hottest_first:
            partition = partition_of[key]
            try:
                route = epoch.route_of(key)
                if route and encoding.find_partition(key, route, partitions) == partition:
                    # It is there already, also where it may not be moved.
                    routes[key] = route
                else:
                    routes |= control.find_routes({key: partition}, partitions)
            except InvalidInputError as error:
                # It was planned before anybody knew the query; the others are none the worse.
                query.refused.add((key, partition))
                shown = self._journal.name_key(key)
                why = str(error).replace(key, shown)
                self._journal.note(f"{name}: key {shown} stays: {why}")
                del partition_of[key]
                if key in query.adopted:
                    partition_of[key] = query.adopted[key]
                    routes[key] = epoch.route_of(key)
        try:
            control.want(
                Wish(routes, "hybrid", share=self._share, effective_batch=self._effective_batch)
            )
        except (OSError, BalancedStreamError) as error:
            self._journal.note(f"{name}: its keys stay where they are: {error}")
            return
        query.told = tells
        self._told.add(name)
        before = query.wanted
        keys = partition_of.keys() | before.keys()
        changed = {key for key in keys if partition_of.get(key) != before.get(key)}
        query.wanted = partition_of
        query.progress = max(query.last_batch, (self._effective_batch or 0) - 1)
        ways = {key: (epoch.route_of(key), routes.get(key, 0)) for key in sorted(changed)}
        go = {key: way for key, way in ways.items() if way[0] != way[1]}
        left = query.under_way
        still = {key: route for key, route in left.items() if routes.get(key, 0) == route}
        query.under_way = still | {key: target for key, (_, target) in go.items()}
        stay = ways.keys() - go.keys()
        self._journal.drop_key_moves(name, stay, "it was withdrawn before the key had moved")
        if go:
            places = {
                key: (
                    encoding.find_partition(key, source, partitions),
                    encoding.find_partition(key, target, partitions),
                )
                for key, (source, target) in go.items()
            }
            reason = self._reasons.get(name, "")
            operator = name, query.operator
            self._journal.begin_key_moves(operator, places, reason, query.last_batch)

    def _resolve_places(self, query: str) -> dict[str, int]:
        """Where a query's keys shall be; those are noted that a plan knows hashed and nobody else.

        Such a key is where Spark's hash has it, if there is one at all.
        """
        places = {route.key: route.partition for route in self.routes if route.query == query}
        known = {key: place for key, place in places.items() if not key.startswith(HASHED)}
        if len(known) < len(places) and query not in self._told_of_unknown:
            self._told_of_unknown.add(query)
            unknown = [key for key in places if key not in known]
            names = ", ".join(unknown[:MOST_NAMED]) + ", ..." * (len(unknown) > MOST_NAMED)
            self._journal.note(
                f"{query}: none of the keys that are hot now or were reassigned is {names}; a key "
                "of a plan that is not known yet goes to its partition once it is hot"
            )
        return known

    def _find_control(self, query: str) -> KeyControl | None:
        """The one balanced operator of a query: of several, which load is whose is unknown."""
        controls = find_controls(query)
        if len(controls) > 1 and query not in self._noted:
            self._noted.add(query)
            self._journal.note(
                f"{query} has {len(controls)} balanced operators: which of their keys cost what "
                "cannot be told apart, so none is moved; partitions are"
            )
        return controls[0] if len(controls) == 1 else None

    def _find_operator(self, event: BatchFinished) -> StatefulOperator | None:
        found = [o for o in event.operators if o.name.startswith(OPERATORS)]
        return found[0] if len(found) == 1 else None


def _list_routes(places: Mapping[tuple[str, str], int]) -> tuple[Route, ...]:
    return tuple(Route(*place, partition) for place, partition in places.items())
