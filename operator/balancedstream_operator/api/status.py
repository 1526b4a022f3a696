"""The status of a BalancedStream as classes: definition (CRD) and reference follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from balancedstream.core.money import MAX_CURRENCY
from balancedstream.core.printing import printable
from balancedstream_operator.api.conditions import (
    KINDS,
    METRICS_AVAILABLE,
    READY,
    RUNNING,
    Condition,
    ConditionKind,
)
from balancedstream_operator.api.resource import MAX_DECISIONS, MAX_HOTTEST, MAX_KEY, MAX_MESSAGE
from balancedstream_operator.api.schema import (
    Figure,
    Part,
    Parts,
    Text,
    Time,
    Words,
    fields_of,
    read_leniently,
    write,
)

UNSEEN = -1
"""The observed generation of a stream that no operator has looked at."""

MAX_CONDITIONS = 32
"""More than there are, so that a newer operator can report to an older definition."""

_FIRST_ROOM = 10
"""Conditions that the first definition of a BalancedStream has room for."""

UNMEASURED = "NoLongerMeasured"
"""The reason of the condition Running where batches ended when they were last measured."""

DecisionKind = Literal["move", "scale", "advise", "refuse", "repartition"]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """A Kubernetes event to post; a `warning` needs attention, and the message is printable."""

    reason: str
    message: str
    warning: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", printable(self.message))


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPartition:
    """A state partition with a high load."""

    query: Annotated[str, Text("Name of the query.", 1024)] = ""
    operator: Annotated[int, Figure("Spark's operator id.")] = 0
    partition: Annotated[int, Figure("Number of the partition.")] = 0
    executor: Annotated[str, Text("Id of the executor that runs it.", 64)] = ""
    busy_s: Annotated[float, Figure("Mean busy seconds per batch.")] = 0.0
    state_bytes: Annotated[int, Figure("Size of its state in bytes.")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKey:
    """A key with a high load."""

    query: Annotated[str, Text("Name of the query.", 1024)] = ""
    operator: Annotated[int, Figure("Spark's operator id.")] = 0
    key: Annotated[str, Text("The key as JSON, or hashed.", MAX_KEY)] = ""
    partition: Annotated[int, Figure("State partition that holds it.")] = 0
    busy_s: Annotated[float, Figure("Mean busy seconds per batch.")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedAhead:
    """State that executors loaded ahead of moves, of one end."""

    moves: Annotated[int, Figure("How many.")] = 0
    state_bytes: Annotated[int, Figure("Size of their state.")] = 0
    seconds: Annotated[float, Figure("Time that executors loaded it, beside batches.")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparations:
    """State that executors loaded ahead of moves, by its end."""

    used: Annotated[LoadedAhead | None, Part("Moves whose task found the state.")] = None
    wasted: Annotated[
        LoadedAhead | None, Part("Partitions that did not move, or moved before it was there.")
    ] = None
    failed: Annotated[
        LoadedAhead | None, Part("Moves whose target did not get it; their task loaded it.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the executors of now cost, at the price of the installation."""

    spent_per_day: Annotated[float, Figure("Money that they cost a day.")] = 0.0
    saved_per_day: Annotated[
        float | None, Figure("Money a day less than a fixed size of executors.max.")
    ] = None
    max_executors: Annotated[int, Figure("That fixed size.")] = 0
    currency: Annotated[str, Text("Of both.", MAX_CURRENCY)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepartitionStatus:
    """Another number of state partitions, under way or over."""

    before: Annotated[int, Figure("State partitions before.")] = 0
    wanted: Annotated[int, Figure("State partitions that spec.partitions asked for.")] = 0
    step: Annotated[
        str,
        Text("Stopping, Rewriting, Undoing, Starting, Done, Failed or Refused.", 64),
    ] = ""
    time: Annotated[str, Time("When it began.")] = ""
    downtime_s: Annotated[
        float | None, Figure("Time without a query, from its last batch to the next one.")
    ] = None
    message: Annotated[str, Text("What is done, or how it ended.", 2048, prose=True)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """A decision that changed something."""

    time: Annotated[str, Time("When it was made.")] = ""
    kind: Annotated[str, Text("move, scale, repartition, advise, or refuse (an approval).", 64)] = (
        ""
    )
    epoch: Annotated[int, Figure("Epoch of the plan that carries it out.")] = 0
    reason: Annotated[str, Text("Why it was made.", 2048, prose=True)] = ""
    effect: Annotated[str | None, Text("What was measured after it.", 1024, prose=True)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What somebody could approve."""

    id: Annotated[str, Text("The value of the annotation that approves it.", 64)] = ""
    time: Annotated[str, Time("When it was proposed first.")] = ""
    reason: Annotated[str, Text("What would be done, and why.", 2048, prose=True)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredApproval:
    """What became of an approval."""

    id: Annotated[str, Text("The proposal that somebody approved.", 64)] = ""
    time: Annotated[str, Time("When it was answered.")] = ""
    result: Annotated[str, Text("CarriedOut or Refused.", 64)] = ""
    message: Annotated[
        str, Text("Which plan carries it out, or why none does.", 2048, prose=True)
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCondition:
    """A condition as the status has it."""

    type: Annotated[str, Text("Name of the condition.", 64)]
    status: Annotated[str, Words("Whether it holds.", ("True", "False", "Unknown"), typed=False)]
    reason: Annotated[str, Text("The cause, in one CamelCase word.", 128)]
    message: Annotated[
        str | None, Text("The cause and what to do, for people.", 4096, prose=True)
    ] = None
    last_transition_time: Annotated[str, Time("When its status changed last.")]
    observed_generation: Annotated[
        int | None, Figure("Generation of the spec that the condition was set for.")
    ] = None

    @property
    def changed_s(self) -> float:
        """When its status changed last, seconds since the Unix epoch."""
        return parse_time(self.last_transition_time or None) or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the operator last observed and decided."""

    phase: Annotated[
        str | None,
        Text(
            "Pending, Starting, Running, Suspended, Repartitioning, Failing, Invalid or Deleting.",
            64,
        ),
    ] = None
    reason: Annotated[
        str | None, Text("Why something changes, or why nothing does.", 4096, prose=True)
    ] = None
    mode: Annotated[str | None, Text("Modes of balancing and scaling, or Paused.", 64)] = None
    observed_generation: Annotated[
        int, Figure("Generation of the spec that the operator last acted on.")
    ] = UNSEEN
    selector: Annotated[
        str | None, Text("Label selector of the executor pods, for the scale subresource.", 1024)
    ] = None
    partitions: Annotated[int | None, Figure("State partitions that there are.")] = None
    repartition: Annotated[
        RepartitionStatus | None,
        Part("The last change of that number; absent before the first."),
    ] = None
    executors: Annotated[int | None, Figure("Executors that run tasks.")] = None
    desired_executors: Annotated[int | None, Figure("Executors that the stream should have.")] = (
        None
    )
    imbalance: Annotated[
        float | None, Figure("Busy time of the hottest executor divided by the mean of all.")
    ] = None
    imbalance_bound: Annotated[
        float | None, Figure("The lowest imbalance that any placement can reach.")
    ] = None
    imbalance_text: Annotated[
        str | None, Text("Imbalance and bound, for the column of kubectl get.", 64, prose=True)
    ] = None
    backlog_rows: Annotated[int | None, Figure("Rows that wait at the sources.")] = None
    input_rows_per_second: Annotated[float | None, Figure("Rows read per second.")] = None
    true_processing_rate: Annotated[
        float | None, Figure("Rows per second that all executors can process.")
    ] = None
    utilization: Annotated[
        float | None, Figure("Fraction of the time that executors are busy.")
    ] = None
    plan_epoch: Annotated[int | None, Figure("Epoch of the newest plan.")] = None
    applied_epoch: Annotated[int | None, Figure("Epoch of the plan that the driver applied.")] = (
        None
    )
    standing: Annotated[
        str | None,
        Text("What the driver does by itself before the next plan.", 1024, prose=True),
    ] = None
    last_scale_time: Annotated[
        str | None, Time("When the number of executors that it should have changed last.")
    ] = None
    hottest_partitions: Annotated[
        tuple[HotPartition, ...],
        Parts("The state partitions with the highest load.", MAX_HOTTEST, filled_in=False),
    ] = ()
    hottest_keys: Annotated[
        tuple[HotKey, ...],
        Parts(
            "The keys with the highest load, of operators that balanced(...) created.",
            MAX_HOTTEST,
            filled_in=False,
        ),
    ] = ()
    preparations: Annotated[
        Preparations | None,
        Part("State that executors loaded ahead of moves since the driver started, by its end."),
    ] = None
    cost: Annotated[
        Cost | None,
        Part("What the executors of now cost; absent without a price (`cost` of the chart)."),
    ] = None
    decisions: Annotated[
        tuple[PastDecision, ...],
        Parts(
            "The last decisions that changed something, newest first.",
            MAX_DECISIONS,
            filled_in=False,
        ),
    ] = ()
    proposal: Annotated[
        Proposal | None,
        Part("What would be done in mode Auto; absent where nothing is, or it is done anyway."),
    ] = None
    approval: Annotated[AnsweredApproval | None, Part("What became of the last approval.")] = None
    conditions: Annotated[
        tuple[StatusCondition, ...],
        Parts(
            "The current state of the stream, by Kubernetes' conventions.",
            MAX_CONDITIONS,
            filled_in=False,
        ),
    ] = ()

    def find(self, kind: ConditionKind) -> StatusCondition | None:
        """A condition; None before it is set for the first time."""
        return next((c for c in self.conditions if c.type == kind.name), None)

    def recall(self, kind: ConditionKind) -> Condition:
        """What was judged last; Unknown, without a reason, if nothing was."""
        found = self.find(kind)
        if found is None:
            return Condition(kind, None, "", "")
        holds = {"True": True, "False": False}.get(found.status)
        return Condition(kind, holds, found.reason, found.message or "")

    @property
    def is_ready(self) -> bool:
        """Whether the stream is ready, by its condition of that name."""
        return self.recall(READY).holds is True

    @property
    def has_batches(self) -> bool:
        """Whether the driver runs and its batches end, as far as is known.

        Unlike a ready one, its spec may just have changed, or it is not measured at present.
        """
        running = self.recall(RUNNING)
        return running.holds is True or running.reason == UNMEASURED

    def measure_wait_s(self, now_s: float) -> float:
        """For how long the stream has run, or not run, and been measured, or not, in seconds."""
        times = [found.changed_s for found in map(self.find, (RUNNING, METRICS_AVAILABLE)) if found]
        return now_s - max(times, default=now_s)


def read_status(resource: Mapping[str, Any]) -> Status:
    """The status of a BalancedStream, by whichever release it was written.

    >>> read_status({"status": {"planEpoch": 7}}).plan_epoch
    7
    """
    return read_leniently(Status, resource.get("status"))


def write_status(status: Status) -> dict[str, Any]:
    """A status as the API server takes it: a field that is None is removed by a merge patch.

    >>> written = write_status(Status(plan_epoch=7))
    >>> written["planEpoch"], written["proposal"]
    (7, None)
    """
    return {**dict.fromkeys(fields_of(Status)), **write(status)}


def shorten_conditions(conditions: Sequence[StatusCondition]) -> tuple[StatusCondition, ...]:
    """As many as the first definition has room for; those that say something come first."""
    quiet = {(kind.name, kind.quiet) for kind in KINDS}
    return tuple(sorted(conditions, key=lambda c: (c.type, c.status) in quiet)[:_FIRST_ROOM])


def drop_words(status: Status) -> Status:
    """A status without the texts that say the same as its other fields."""
    conditions = tuple(replace(condition, message=None) for condition in status.conditions)
    return replace(status, reason=None, conditions=conditions)


def format_time(time_s: float) -> str:
    """A time in the format of Kubernetes.

    >>> format_time(0.0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> float | None:
    """Seconds since the Unix epoch from a time in the format of Kubernetes.

    >>> parse_time("1970-01-01T00:01:00Z")
    60.0
    """
    return None if text is None else datetime.fromisoformat(text).timestamp()


def summarize(reasons: Sequence[str]) -> str:
    """Several reasons as one text, short enough for a status.

    >>> summarize(["a", "", "b"])
    'a; b'
    """
    return "; ".join(reason for reason in reasons if reason)[:MAX_MESSAGE]
