"""The conditions of a stream: all that is known of each of them, in one place; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class ConditionKind:
    """One condition that a stream can have.

    Attributes:
        name: its type in the status.
        quiet: the state that it can start in without an event; empty for none.
        attention: the state that needs a person; empty for none.
        measured: whether it is Unknown while the driver does not run, or nothing is decided.
        sums_up: whether it repeats other conditions: it makes no event.
        remedies: what a person can do, by reason; "" is for any other reason of a state that is
            neither quiet nor Unknown. A test compares them with docs/reference/conditions.md.
    """

    name: str
    quiet: State | Literal[""]
    attention: State | Literal[""] = ""
    measured: bool = False
    sums_up: bool = False
    remedies: Mapping[str, str] = field(default_factory=dict)

    def find_remedy(self, state: str, reason: str) -> str:
        """What to do about a state and its reason; empty if nothing has to be done.

        >>> METRICS_AVAILABLE.find_remedy("False", "Missing")[:13]
        'Check the URL'
        >>> BALANCED.find_remedy("False", "Skewed")
        ''
        """
        if state == "Unknown":
            return ""
        named = self.remedies.get(reason, "") if reason else ""
        return named or ("" if state == self.quiet else self.remedies.get("", ""))


@dataclass(frozen=True, slots=True)
class Condition:
    """What is judged of a stream.

    Attributes:
        kind: which condition.
        holds: None if that is not known.
        reason: in one CamelCase word.
        message: for people.
    """

    kind: ConditionKind
    holds: bool | None
    reason: str
    message: str

    @property
    def state(self) -> State:
        """The same as `holds`, in the word of the status."""
        return "Unknown" if self.holds is None else "True" if self.holds else "False"


KINDS = (
    ACCEPTED := ConditionKind(
        "Accepted",
        quiet="True",
        attention="False",
        remedies={
            "InvalidSpec": "Correct the field that the message names.",
            "FieldsIgnored": (
                "Upgrade the operator if it does not know them; remove those that have no effect."
            ),
        },
    ),
    READY := ConditionKind("Ready", quiet="", sums_up=True),
    RECONCILING := ConditionKind(
        "Reconciling",
        quiet="",
        sums_up=True,
        remedies={
            "BeingDeleted": "If it stays: ask who set the finalizers that the message names.",
        },
    ),
    STALLED := ConditionKind("Stalled", quiet="", sums_up=True),
    RUNNING := ConditionKind(
        "Running",
        quiet="False",
        attention="False",
        remedies={
            "ImageUnavailable": "Correct spec.image; the new pod starts by itself.",
            "ApplicationFailed": (
                "Read its last words in the message, then kubectl logs NAME-driver-0 --previous."
            ),
            "Unschedulable": "Read the message; it is the scheduler's.",
            "DriverRefused": (
                "Raise the quota, or correct what they name. The operator then has the pod made "
                "within a minute."
            ),
            "ConfigMapMissing": "Add it; the pod starts by itself. Or correct the spec.",
            "CannotStart": (
                "Add what the message names, or correct the spec. The pod then starts by itself."
            ),
            "StartStuck": "Read the events: kubectl describe pod NAME-driver-0.",
            "DriverStuck": (
                "Make sure that the old pod runs nowhere, then run the command in the message that "
                "fits. The operator never forces it, because two drivers on one checkpoint would "
                "lose data."
            ),
            "TargetMissing": "Start the application, or correct targetRef.",
            "TargetFailed": (
                "Read the message, then the log of the pod that it names. Its own operator starts "
                "it again, or you do."
            ),
            "SeveralDrivers": "Let targetRef name labels that only one of them has.",
            "NoProgress": "The query hangs: see the driver's log.",
            "Refused": (
                "Do what the message says. A renamed stream starts by itself when the old driver "
                "is gone."
            ),
        },
    ),
    METRICS_AVAILABLE := ConditionKind(
        "MetricsAvailable",
        quiet="True",
        attention="False",
        measured=True,
        remedies={
            "": (
                "Check the URL that the message names, that the operator may ask it, that the "
                "chart's networkPolicy lets it reach the port, and that Prometheus scrapes the "
                "driver pods (annotations, or the chart's PodMonitor)."
            ),
        },
    ),
    BALANCED := ConditionKind("Balanced", quiet="True", measured=True),
    SCALING_LIMITED := ConditionKind(
        "ScalingLimited",
        quiet="False",
        attention="True",
        measured=True,
        remedies={
            "OutOfBounds": "Change the limits.",
            "AtLimit": (
                "If a backlog grows: raise the limit of executors that the message names, or max."
            ),
            "SharedLimit": (
                "Wait until others need less, or let the operator's administrator raise the limit "
                "that the message names."
            ),
            "SourceBound": (
                "Give the source more splits (Kafka: topic partitions, or minPartitions), or "
                "repartition before the costly step; raise a limit of rows (maxOffsetsPerTrigger) "
                "that the message names."
            ),
            "PartitionBound": (
                "Change spec.partitions: the stream stands still while its state is written anew. "
                "With targetRef, or before Spark 4.2, start a new checkpoint with a higher "
                "spark.sql.shuffle.partitions."
            ),
            "DriverBound": (
                "Use larger and fewer batches (a longer trigger interval), or do less on the "
                "driver."
            ),
            "Slots": (
                "Raise max or the executors' cores, or start a new checkpoint with a lower "
                "spark.sql.shuffle.partitions."
            ),
            "MemoryBound": "See the condition MemoryTight, whose message names the sizes.",
            "DynamicAllocation": (
                'Switch dynamic allocation off in the application, or set scaling.mode to "Off".'
            ),
            "ExecutorsPending": (
                "Add nodes, raise the quota, or correct what they name. If nothing is named, see "
                "the driver's log."
            ),
        },
    ),
    MIGRATING := ConditionKind("Migrating", quiet="False", measured=True),
    FALLBACK := ConditionKind(
        "Fallback",
        quiet="False",
        attention="True",
        measured=True,
        remedies={
            "AnswerUnusable": (
                "See who else may write ConfigMaps there. Then have a new driver made, which "
                "begins anew: kubectl annotate bst NAME --overwrite "
                'balancedstream.io/restart="$(date)".'
            ),
            "DriverSilent": "The driver's log says why it cannot reach the API server.",
        },
    ),
    REPARTITIONING := ConditionKind("Repartitioning", quiet="False"),
    PARTITIONS_AS_ASKED := ConditionKind(
        "PartitionsAsAsked",
        quiet="True",
        attention="False",
        remedies={
            "Refused": (
                "Do what the message says, then set spec.partitions back, and again to the number; "
                "or leave the old one."
            ),
            "Failed": (
                "Read the message; the log of Job NAME-repartition has more. To try again, set "
                "spec.partitions back, and again to the number."
            ),
        },
    ),
    SUSPENDED := ConditionKind("Suspended", quiet="False", remedies={"": "Set it back."}),
    PAUSED := ConditionKind(
        "Paused", quiet="False", remedies={"": "Resume it: kubectl bst resume NAME."}
    ),
    EXCLUDED := ConditionKind("Excluded", quiet="False"),
    FLOOR_KNOWN := ConditionKind(
        "FloorKnown",
        quiet="True",
        attention="False",
        measured=True,
        remedies={
            "": "Correct executors.minQuery, or see why Prometheus does not answer it.",
        },
    ),
    UNSPLITTABLE := ConditionKind(
        "Unsplittable",
        quiet="False",
        attention="True",
        measured=True,
        remedies={
            "": (
                "Use balanced(...): it separates the partition's keys, and its aggregate splits "
                "even one key."
            ),
        },
    ),
    COSTS_TRUSTED := ConditionKind(
        "CostsTrusted",
        quiet="True",
        attention="False",
        measured=True,
        remedies={
            "EstimatesOff": (
                "Give it a cost key that tells costs better, and make sure that the function works "
                "while it reads its input. The message names the shuffle and both errors."
            ),
        },
    ),
    EXECUTORS_LOST := ConditionKind(
        "ExecutorsLost",
        quiet="False",
        attention="True",
        measured=True,
        remedies={
            "OutOfMemory": (
                "Raise executors.memoryOverhead, where Python and RocksDB have theirs."
            ),
            "HeapFull": "Raise executors.memory.",
            "ExecutorsExit": "The driver's log says how, in Spark's words.",
            "ExecutorsSilent": "Look at their nodes, and at the network.",
        },
    ),
    MEMORY_TIGHT := ConditionKind(
        "MemoryTight",
        quiet="False",
        attention="True",
        measured=True,
        remedies={
            "NearLimit": (
                "Set the sizes that the message names, before the executor is killed; see which "
                "part takes most."
            ),
            "Growing": (
                "Set the sizes that the message names before then; or find out why state grows "
                "without end (a watermark, a TTL)."
            ),
            "SlowReads": "Set the sizes that the message names: they hold the state in the cache.",
        },
    ),
    PLAN_REFUSED := ConditionKind(
        "PlanRefused",
        quiet="False",
        attention="True",
        remedies={
            "": (
                "If it stays: an unknown field means that the image has an older release than the "
                "operator; an epoch that is too old means that somebody wrote a plan, and a new "
                "driver pod helps."
            ),
        },
    ),
    DRIVER_OUTDATED := ConditionKind(
        "DriverOutdated",
        quiet="False",
        remedies={
            "WaitsForTurn": "Nothing; its turn comes.",
            "": (
                "When it suits: kubectl annotate bst NAME --overwrite "
                'balancedstream.io/restart="$(date)". The next change of the spec that needs a new '
                "driver does the same."
            ),
        },
    ),
    PASS_FAILED := ConditionKind(
        "PassFailed",
        quiet="False",
        attention="True",
        remedies={
            "": (
                "UnreachableError: the API server does not answer. RefusedError: it refuses "
                "something. Any other: report it, with the operator's log."
            ),
        },
    ),
)
"""All kinds, in the order in which the status lists them."""

NAMED: Mapping[str, ConditionKind] = {kind.name: kind for kind in KINDS}
"""The same by name. A newer operator may have written others."""
