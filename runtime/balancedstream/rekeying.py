"""Makes the routes of plans come true: keys of balanced operators go to other state partitions."""

from __future__ import annotations

from collections.abc import Mapping

from balancedstream.core.epochs import Epoch, Wish
from balancedstream.core.keys import name_key
from balancedstream.core.observations import KeySample
from balancedstream.core.plan import Plan, Route
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.errors import BalancedStreamError
from balancedstream.journal import Journal
from balancedstream.keyed.control import KeyControl, find_controls, forget_controls

OPERATORS = ("TransformWithState", "FlatMapGroupsInPandasWithState")
"""Begin Spark's names of the operators whose keys can be balanced."""

HOTTEST = 20
"""So many keys a batch are told of: the ones that matter for balance."""

HASHED = "#"
"""Begins the name of a key that is told of hashed; no key's text does."""

PATIENCE_BATCHES = 10
"""A key whose state does not come in so many batches is left where it is, with the reason."""

SHARE = 100
"""Keys whose state is handed over in one batch at most; hot ones are few."""


class Rekeyer:
    """Realizes routes on one application.

    Args:
        journal: is told what becomes of them.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._routes: tuple[Route, ...] = ()
        self._effective_batch: int | None = None
        self._reasons: Mapping[str, str] = {}
        self._operators: dict[str, int] = {}
        self._epochs: dict[str, Epoch] = {}
        self._partitions: dict[str, int] = {}
        self._wanted: dict[str, dict[str, int]] = {}
        self._under_way: dict[str, dict[str, int]] = {}
        self._samples: dict[str, tuple[KeySample, ...]] = {}
        self._arrived: dict[str, int] = {}
        self._progress: dict[str, int] = {}
        self._last_batches: dict[str, int] = {}
        self._names: dict[str, dict[str, str]] = {}
        self._adopted: dict[str, dict[str, int]] = {}
        self._given_up: dict[str, set[tuple[str, int]]] = {}
        self._noted: set[str] = set()

    @property
    def routes(self) -> tuple[Route, ...]:
        """Of the plan in force."""
        return self._routes

    def settling(self) -> set[str]:
        """Queries that have keys which are not yet where they shall be."""
        return {query for query, keys in self._under_way.items() if keys}

    def samples(self, query: str) -> tuple[KeySample, ...]:
        """The hot keys of a query's last batch; none where its keys stay."""
        return self._samples.get(query, ())

    def check(self, plan: Plan) -> None:
        """Refuses routes that cannot be; nothing changes.

        Raises:
            InvalidInputError: a key that is none of its query's; the message names it.
        """
        for route in plan.routes:
            control = self._find_control(route.query)
            if control is not None and not route.key.startswith(HASHED):
                control.encoding.spell(route.key)

    def apply(self, plan: Plan, reasons: Mapping[str, str]) -> None:
        """Begins to realize a plan's routes; what an older one had under way is withdrawn.

        Args:
            plan: with the routes.
            reasons: query to why its keys go elsewhere, for a person.
        """
        self._routes = plan.routes
        self._reasons = reasons
        self._effective_batch = plan.effective_batch
        for query in self._partitions:
            self._want(query)

    def last_arrival(self, query: str) -> int:
        """The last batch in which keys changed their partition; what was measured before is void.

        Returns:
            -1 where none ever did.
        """
        return self._arrived.get(query, -1)

    def finish_batch(self, event: BatchFinished) -> None:
        """Takes in which keys were hot, and which have arrived."""
        control, operator = self._find_control(event.query), self._find_operator(event)
        if control is None or operator is None:
            return
        batch = event.sample.batch
        self._last_batches[event.query] = batch
        self._samples[event.query] = tuple(
            KeySample(event.query, operator.id, key, partition, batch, busy_s)
            for key, partition, busy_s in control.take_hot_keys(batch, HOTTEST)
        )
        self._journal.add_hot_keys(event.query, operator.id, self._samples[event.query])
        try:
            epoch = control.read_epoch(batch)
        except (OSError, BalancedStreamError) as error:
            # The query is right without anybody looking on.
            self._journal.note(f"{event.query}: where its keys are cannot be seen: {error}")
            return
        self._learn_names(event.query, epoch)
        self._operators[event.query] = operator.id
        self._epochs[event.query] = epoch
        if event.query not in self._partitions:
            self._partitions[event.query] = operator.partitions
            planned = tuple(r for r in self._routes if r.query == event.query)
            self._adopt(event.query, control, epoch)
            # What a plan says of a key counts more than where the checkpoint has it.
            self._routes += planned
            self._want(event.query)
        waiting = self._under_way.get(event.query, {})
        for key, route in list(waiting.items()):
            if epoch.route_of(key) == route:
                del waiting[key]
                self._journal.settle_key_move(event.query, key, batch)
        if epoch.batch == batch and epoch.arrivals:
            self._arrived[event.query] = batch
            self._progress[event.query] = batch
        if waiting and batch - self._progress[event.query] >= PATIENCE_BATCHES:
            self._give_up(event.query, control, epoch)
        self._journal.add_keys_under_way(event.query, len(waiting), self._arrived.get(event.query))

    def _give_up(self, query: str, control: KeyControl, epoch: Epoch) -> None:
        """Leaves those keys where they are that do not come: asking goes on batch after batch."""
        waiting = self._under_way.pop(query)
        wanted = self._wanted[query]
        refused = {(key, wanted[key]) for key in waiting if key in wanted}
        self._given_up.setdefault(query, set()).update(refused)
        control.want(Wish(epoch.routes))
        self._adopt(query, control, epoch)
        why = f"their state was not handed over in {PATIENCE_BATCHES} batches"
        self._journal.drop_key_moves(query, waiting, why)
        self._journal.note(
            f"{query}: {len(waiting)} keys stay where they are, for {why}; no state is lost. A "
            "batch that Spark runs twice (foreachBatch with several actions and no persist()) "
            "keeps keys from moving"
        )

    def _adopt(self, query: str, control: KeyControl, epoch: Epoch) -> None:
        """Keys shall be where the checkpoint has them."""
        partitions = self._partitions[query]
        found = {
            key: control.encoding.find_partition(key, route, partitions)
            for key, route in epoch.routes.items()
        }
        self._wanted[query] = found
        self._adopted[query] = found
        others = (route for route in self._routes if route.query != query)
        here = (Route(query, key, partition) for key, partition in found.items())
        self._routes = (*others, *here)

    def end_query(self, query: str) -> None:
        """A query is over; its keys stay where its checkpoint has them."""
        forget_controls(query)
        self._operators.pop(query, None)
        self._epochs.pop(query, None)
        self._partitions.pop(query, None)
        self._wanted.pop(query, None)
        self._under_way.pop(query, None)
        self._samples.pop(query, None)
        self._arrived.pop(query, None)
        self._names.pop(query, None)
        self._adopted.pop(query, None)
        self._given_up.pop(query, None)
        self._progress.pop(query, None)
        self._last_batches.pop(query, None)

    def _want(self, query: str) -> None:
        """Hands a query's routes over, if they are other ones than before."""
        control = self._find_control(query)
        names, given_up = self._names.get(query, {}), self._given_up.get(query, set())
        planned = {
            names.get(route.key, route.key): route.partition
            for route in self._routes
            # A hashed key that is neither hot nor reassigned is where Spark's hash has it.
            if route.query == query and (route.key in names or not route.key.startswith(HASHED))
        }
        possible = {k: p for k, p in planned.items() if (k, p) not in given_up}
        partition_of = self._adopted.get(query, {}) | possible
        if control is None or self._wanted.get(query, {}) == partition_of:
            return
        try:
            routes = control.find_routes(partition_of, self._partitions[query])
        except BalancedStreamError as error:
            self._journal.note(f"{query}: its keys stay where they are: {error}")
            return
        control.want(Wish(routes, "hybrid", share=SHARE, effective_batch=self._effective_batch))
        before = self._wanted.get(query, {})
        keys = partition_of.keys() | before.keys()
        changed = {key for key in keys if partition_of.get(key) != before.get(key)}
        self._wanted[query] = partition_of
        self._progress[query] = max(self._last_batches[query], (self._effective_batch or 0) - 1)
        left = self._under_way.get(query, {})
        still = {key: route for key, route in left.items() if routes.get(key, 0) == route}
        self._under_way[query] = still | {key: routes.get(key, 0) for key in changed}
        epoch, partitions = self._epochs[query], self._partitions[query]

        def find_way(key: str) -> tuple[int, int]:
            ends = epoch.route_of(key), routes.get(key, 0)
            source, target = (control.encoding.find_partition(key, r, partitions) for r in ends)
            return source, target

        self._journal.begin_key_moves(
            (query, self._operators[query]),
            {key: find_way(key) for key in sorted(changed)},
            self._reasons.get(query, ""),
            self._last_batches[query],
        )

    def _learn_names(self, query: str, epoch: Epoch) -> None:
        """Which keys a plan may speak of that knows them hashed only."""
        hot, wanted = [s.key for s in self._samples[query]], self._wanted.get(query, {})
        self._names[query] = {
            str(name_key(key, "hashed")): key for key in (*epoch.routes, *wanted, *hot)
        }

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
