"""Makes the key placements of plans come true: keys go to other state partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from balancedstream.core.keys.epochs import Epoch, Wish
from balancedstream.core.keys.text import HASHED
from balancedstream.core.samples import KeySample
from balancedstream.core.wire.plan import MAX_KEY_PLACEMENTS, KeyPlacement, Plan
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.errors import BalancedStreamError, InvalidInputError, RefusedKeyError
from balancedstream.keyed.control import KeyControl, find_controls, forget_controls
from balancedstream.loop.query_keys import NO_ARRIVAL, KeyState, QueryKeys
from balancedstream.record.journal import Journal

OPERATORS = ("TransformWithState", "FlatMapGroupsInPandasWithState")
"""Begin Spark's names of the operators whose keys can be balanced."""

HOTTEST = 20
"""Keys reported for each batch: the ones that matter for balance."""

MAX_NAMED = 5
"""Unknown keys that a note names."""

SWITCH_BATCHES = 3
"""A key takes one batch to be asked for and one to arrive; a third may be running already."""

PATIENCE_BATCHES = 10
"""A key whose state does not arrive within this many batches stays where it is."""

GIVEN_UP_BATCHES = 1_000
"""After this many batches it is asked for again: what kept it from moving may be over."""


class KeyReassigner:
    """Realizes key placements on one application.

    Args:
        journal: records how they end.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._planned: tuple[KeyPlacement, ...] = ()
        self._effective_batch: int | None = None
        self._share = 1
        self._reasons: Mapping[str, str] = {}
        self._queries: dict[str, QueryKeys] = {}
        self._run_ids: dict[str, str] = {}
        self._noted: set[str] = set()
        # Queries for which a note already said that the plan in force names unknown keys.
        self._noted_unknown: set[str] = set()
        # Queries that were sent something: their next run finds it in the mailbox.
        self._sent: set[str] = set()

    def state(self) -> KeyState:
        """The present state of keys, for the next plan."""
        queries = self._queries
        return KeyState(
            placements=self._find_placements(),
            settling={name for name, query in queries.items() if query.under_way},
            samples={name: query.samples for name, query in queries.items()},
            immovable={name: query.immovable() for name, query in queries.items()},
            last_arrivals={name: query.last_arrival for name, query in queries.items()},
        )

    def coming_batches(self, query: str) -> int:
        """Batches until all keys under way will have arrived, if all goes well."""
        count = len(self._queries[query].under_way) if query in self._queries else 0
        return SWITCH_BATCHES - 1 + math.ceil(count / self._share) if count else 0

    def check(self, plan: Plan) -> None:
        """Refuses key placements that are impossible; nothing changes.

        Raises:
            InvalidInputError: a key does not belong to its query, or the query has no such
                partition; the message names it.
        """
        for placed in plan.key_placements:
            control, query = self._find_control(placed.query), self._queries.get(placed.query)
            if control is not None and not placed.key.startswith(HASHED):
                key = control.encoding.spell(placed.key)
                if query is None or query.adopted.get(key) != placed.partition:
                    control.encoding.check_movable(key)
            if query is not None and placed.partition >= query.partitions:
                message = (
                    f"key_placements: key {placed.key} cannot go to partition {placed.partition}: "
                    f"{placed.query} has {query.partitions}, counted from 0; nothing changed"
                )
                raise InvalidInputError(message)

    def handed_over(self, query: str) -> tuple[int, float]:
        """How many keys came or went in a query's last batch, and the seconds that it took."""
        return self._queries[query].handed_over if query in self._queries else (0, 0.0)

    def apply(self, plan: Plan, share: int, reasons: Mapping[str, str]) -> None:
        """Begins to realize a plan's key placements; an older plan's moves are withdrawn.

        Args:
            plan: the whole plan, for all queries.
            share: keys that may be handed over in one batch.
            reasons: by query, why its keys move, for a person.
        """
        self._planned = plan.key_placements
        self._noted_unknown.clear()
        self._share = share
        self._reasons = reasons
        self._effective_batch = plan.effective_batch
        if len(plan.key_placements) >= MAX_KEY_PLACEMENTS:
            self._send_home()
        for name, query in self._queries.items():
            self._ask(name, query)

    def _send_home(self) -> None:
        """Gives up adopted keys that a full plan does not name."""
        planned = self._find_planned()
        for name, query in self._queries.items():
            kept = {key for of_query, key in planned if of_query == name} | query.immovable()
            query.adopted = {key: p for key, p in query.adopted.items() if key in kept}

    def finish_batch(self, event: BatchFinished) -> None:
        """Notes which keys were hot, and which arrived."""
        name, batch = event.query, event.sample.batch
        self._run_ids[name] = event.run_id
        control, operator = self._find_control(name), self._find_operator(event)
        if control is None or operator is None:
            return
        query = self._queries.setdefault(name, QueryKeys(operator.id, operator.partitions))
        query.last_batch = batch
        query.samples = tuple(
            KeySample(name, operator.id, key, partition, batch, busy_s)
            for key, partition, busy_s in control.take_hot_keys(batch, HOTTEST)
        )
        query.fixed = {hot.key for hot in query.samples if not control.encoding.can_move(hot.key)}
        query.handed_over = control.take_handoffs(batch)
        self._journal.add_hot_keys(name, operator.id, query.samples, query.immovable())
        try:
            epoch = control.read_epoch(batch)
        except (OSError, BalancedStreamError) as error:
            # The query stays right: only this loop cannot see its keys.
            self._journal.note(f"{name}: cannot read where its keys are: {error}")
            return
        begins = not query.is_known
        query.epoch, query.is_known = epoch, True
        if begins:
            self._adopt(query, control, epoch)
        retried = [p for p, since in query.given_up.items() if batch - since > GIVEN_UP_BATCHES]
        for place in retried:
            del query.given_up[place]
        # A key that the plan names by its hash is known once it is hot.
        if begins or retried or name in self._find_hashed():
            self._ask(name, query)
        for key, route in list(query.under_way.items()):
            if epoch.route_of(key) == route:
                del query.under_way[key]
                self._journal.settle_key_move(name, key, batch)
        if epoch.batch == batch and epoch.arrivals:
            query.last_arrival = query.progress = batch
        if query.under_way and batch - query.progress >= PATIENCE_BATCHES:
            self._give_up(name, query, control, epoch)
        last_arrival = None if query.last_arrival == NO_ARRIVAL else query.last_arrival
        self._journal.add_keys_under_way(name, len(query.under_way), last_arrival)

    def _give_up(self, name: str, query: QueryKeys, control: KeyControl, epoch: Epoch) -> None:
        """Leaves keys where they are whose state does not arrive."""
        waiting, wanted = list(query.under_way), query.wanted
        places = [(key, wanted[key]) for key in waiting if key in wanted]
        query.given_up |= dict.fromkeys(places, query.last_batch)
        query.under_way = {}
        query.last_sent = None
        self._adopt(query, control, epoch)
        why = f"their state was not handed over within {PATIENCE_BATCHES} batches"
        self._journal.drop_key_moves(name, waiting, why)
        try:
            control.want(Wish(epoch.routes))
        except (OSError, BalancedStreamError) as error:
            why = _describe_reason(error)
            self._journal.note(f"{name}: cannot take back the request for its keys: {why}")
        self._journal.note(
            f"{name}: {len(waiting)} keys stay where they are because {why}; no state is lost. "
            "Keys cannot move while Spark runs a batch twice (foreachBatch with several actions "
            "and no persist())"
        )

    def _adopt(self, query: QueryKeys, control: KeyControl, epoch: Epoch) -> None:
        """Wants keys where the checkpoint has them."""
        query.adopted = query.wanted = {
            key: control.encoding.find_partition(key, route, query.partitions)
            for key, route in epoch.routes.items()
        }

    def end_query(self, query: str) -> None:
        """Forgets a query that ended; its keys stay where the checkpoint has them."""
        forget_controls(self._run_ids.pop(query, ""))
        if query in self._queries:
            waiting = self._queries[query].under_way
            self._journal.drop_key_moves(query, waiting, "the query ended")
        # If it begins again, what was given up is not asked for until a new plan comes.
        self._planned = _list_placements(self._find_planned())
        self._queries.pop(query, None)

    def _find_hashed(self) -> set[str]:
        """Queries with keys that the plan names by their hash."""
        return {placed.query for placed in self._planned if placed.key.startswith(HASHED)}

    def _find_planned(self) -> dict[tuple[str, str], int]:
        """(query, key) to partition: what the plan in force places, except what was given up."""
        hashed = self._find_hashed()
        names = {name: query.names() for name, query in self._queries.items() if name in hashed}
        places: dict[tuple[str, str], int] = {}
        for placed in self._planned:
            key = names.get(placed.query, {}).get(placed.key, placed.key)
            query = self._queries.get(placed.query)
            place = key, placed.partition
            if query is None or not (place in query.given_up or place in query.refused):
                places[placed.query, key] = placed.partition
        return places

    def _find_placements(self) -> tuple[KeyPlacement, ...]:
        """What the plan in force places, and where the checkpoint has all other keys."""
        adopted = {
            (name, key): partition
            for name, query in self._queries.items()
            for key, partition in query.adopted.items()
        }
        # What a plan says of a key counts more than where the checkpoint has it.
        return _list_placements(adopted | self._find_planned())

    def _ask(self, name: str, query: QueryKeys) -> None:
        """Asks for a query's keys to be where they are planned, unless that was asked for last."""
        control = self._find_control(name)
        if control is None or not query.is_known:
            return
        places = self._resolve_places(name)
        message = places, self._share, self._effective_batch
        if query.last_sent == message:
            return
        if query.last_sent is None and name not in self._sent and query.wanted == places:
            # Nothing was asked for so far, except perhaps by a person.
            return
        # Refused keys change `places`, and with it what counts as sent.
        routes = self._find_routes(name, query, control, places)
        if self._send(name, control, routes):
            query.last_sent = message
            self._sent.add(name)
            self._begin_moves(name, query, control, places, routes)

    def _find_routes(
        self,
        name: str,
        query: QueryKeys,
        control: KeyControl,
        places: dict[str, int],
    ) -> dict[str, int]:
        """Routes that lead keys to their places, the hottest first; a refused key stays."""
        encoding, partitions, epoch = control.encoding, query.partitions, query.epoch
        busy_s = {hot.key: hot.busy_s for hot in query.samples}
        routes: dict[str, int] = {}
        # Hybrid handoff asks for keys in this order.
        for key in sorted(places, key=lambda key: -busy_s.get(key, 0.0)):
            partition = places[key]
            try:
                route = epoch.route_of(key)
                if route and encoding.find_partition(key, route, partitions) == partition:
                    # It is there already, even if it may not be moved.
                    routes[key] = route
                else:
                    routes |= control.find_routes({key: partition}, partitions)
            except InvalidInputError as error:
                # The plan was made before the query was known; other keys are not affected.
                query.refused.add((key, partition))
                shown = self._journal.name_key(key)
                self._journal.note(f"{name}: key {shown} stays: {_describe_reason(error)}")
                del places[key]
                if key in query.adopted:
                    places[key] = query.adopted[key]
                    routes[key] = epoch.route_of(key)
        return routes

    def _send(self, name: str, control: KeyControl, routes: Mapping[str, int]) -> bool:
        """Hands routes to the query's tasks; False where that failed, and nothing moves."""
        wish = Wish(routes, "hybrid", share=self._share, effective_batch=self._effective_batch)
        try:
            control.want(wish)
        except (OSError, BalancedStreamError) as error:
            self._journal.note(f"{name}: its keys stay where they are: {_describe_reason(error)}")
            return False
        return True

    def _begin_moves(
        self,
        name: str,
        query: QueryKeys,
        control: KeyControl,
        places: dict[str, int],
        routes: Mapping[str, int],
    ) -> None:
        """Notes which keys begin to move, and which moves are withdrawn."""
        encoding, partitions, epoch = control.encoding, query.partitions, query.epoch
        before = query.wanted
        keys = places.keys() | before.keys()
        changed = {key for key in keys if places.get(key) != before.get(key)}
        query.wanted = places
        query.progress = max(query.last_batch, (self._effective_batch or 0) - 1)
        ways = {key: (epoch.route_of(key), routes.get(key, 0)) for key in sorted(changed)}
        go = {key: way for key, way in ways.items() if way[0] != way[1]}
        left = query.under_way
        still = {key: route for key, route in left.items() if routes.get(key, 0) == route}
        query.under_way = still | {key: target for key, (_, target) in go.items()}
        stay = ways.keys() - go.keys()
        self._journal.drop_key_moves(name, stay, "withdrawn before the key moved")
        if go:
            ends = {
                key: (
                    encoding.find_partition(key, source, partitions),
                    encoding.find_partition(key, target, partitions),
                )
                for key, (source, target) in go.items()
            }
            reason = self._reasons.get(name, "")
            self._journal.begin_key_moves((name, query.operator), ends, reason, query.last_batch)

    def _resolve_places(self, query: str) -> dict[str, int]:
        """The planned partitions of a query's keys; notes hashed keys that match no known key.

        Such a key stays where Spark's hash sends it, if it exists at all.
        """
        placements = self._find_placements()
        places = {placed.key: placed.partition for placed in placements if placed.query == query}
        known = {key: place for key, place in places.items() if not key.startswith(HASHED)}
        if len(known) < len(places) and query not in self._noted_unknown:
            self._noted_unknown.add(query)
            unknown = [key for key in places if key not in known]
            names = ", ".join(unknown[:MAX_NAMED]) + ", ..." * (len(unknown) > MAX_NAMED)
            self._journal.note(
                f"{query}: no key that is hot now or was reassigned matches {names}; a key that a "
                "plan names by its hash goes to its partition once it is hot"
            )
        return known

    def _find_control(self, query: str) -> KeyControl | None:
        """The balanced operator of a query; None if it has several, whose loads look alike."""
        controls = find_controls(self._run_ids.get(query, ""))
        if len(controls) > 1 and query not in self._noted:
            self._noted.add(query)
            self._journal.note(
                f"{query} has {len(controls)} balanced operators, so the load of a key cannot be "
                "measured: partitions are balanced, keys are not"
            )
        return controls[0] if len(controls) == 1 else None

    def _find_operator(self, event: BatchFinished) -> StatefulOperator | None:
        found = [o for o in event.operators if o.name.startswith(OPERATORS)]
        return found[0] if len(found) == 1 else None


def _describe_reason(error: Exception) -> str:
    """What is wrong, without any key: notes are shown where keys must not be seen."""
    return error.why if isinstance(error, RefusedKeyError) else str(error)


def _list_placements(places: Mapping[tuple[str, str], int]) -> tuple[KeyPlacement, ...]:
    return tuple(KeyPlacement(*place, partition) for place, partition in places.items())
