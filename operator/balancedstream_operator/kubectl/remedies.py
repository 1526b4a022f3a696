"""What to do about a condition, in the words of docs/reference/conditions.md: a test compares."""

from __future__ import annotations

_REMEDIES = {
    ("Accepted", "False", "InvalidSpec"): "Correct the field that the message names.",
    ("Accepted", "True", "FieldsIgnored"): "Upgrade the operator.",
    ("Running", "False", "ImageUnavailable"): ("Correct spec.image; the new pod starts by itself."),
    ("Running", "False", "ApplicationFailed"): (
        "Read its last words in the message, then kubectl logs NAME-driver-0 --previous."
    ),
    ("Running", "False", "Unschedulable"): "Read the message; it is the scheduler's.",
    ("Running", "False", "DriverRefused"): (
        "Raise the quota, or correct what they name. The operator then has the pod made within a "
        "minute."
    ),
    ("Running", "False", "ConfigMapMissing"): (
        "Add it; the pod starts by itself. Or correct the spec."
    ),
    ("Running", "False", "CannotStart"): (
        "Add what the message names, or correct the spec. The pod then starts by itself."
    ),
    ("Running", "False", "StartStuck"): "Read the events: kubectl describe pod NAME-driver-0.",
    ("Running", "False", "DriverStuck"): (
        "Make sure that the old pod runs nowhere, then run the command in the message that "
        "fits. The operator never forces it, because two drivers on one checkpoint would lose data."
    ),
    ("Running", "False", "TargetMissing"): "Start the application, or correct targetRef.",
    ("Running", "False", "TargetFailed"): (
        "Read the message, then the log of the pod that it names. Its own operator starts it "
        "again, or you do."
    ),
    ("Running", "False", "SeveralDrivers"): "Let targetRef name labels that only one of them has.",
    ("Running", "False", "NoProgress"): "The query hangs: see the driver's log.",
    ("Running", "False", "Refused"): (
        "Do what the message says. A renamed stream starts by itself when the old driver is gone."
    ),
    ("Reconciling", "True", "BeingDeleted"): (
        "If it stays: ask who set the finalizers that the message names."
    ),
    ("MetricsAvailable", "False", ""): (
        "Check the URL that the message names, that the operator may ask it, that the chart's "
        "networkPolicy lets it reach the port, and that Prometheus scrapes the driver pods "
        "(annotations, or the chart's PodMonitor)."
    ),
    ("Fallback", "True", "AnswerUnusable"): (
        "See who else may write ConfigMaps there. Then have a new driver made, which begins anew: "
        'kubectl annotate bst NAME --overwrite balancedstream.io/restart="$(date)".'
    ),
    ("Fallback", "True", "DriverSilent"): (
        "The driver's log says why it cannot reach the API server."
    ),
    ("Unsplittable", "True", ""): (
        "Use balanced(...): it separates the partition's keys, and its aggregate splits even one "
        "key."
    ),
    ("ExecutorsLost", "True", "OutOfMemory"): (
        "Raise executors.memoryOverhead, where Python and RocksDB have theirs."
    ),
    ("ExecutorsLost", "True", "HeapFull"): "Raise executors.memory.",
    ("ExecutorsLost", "True", "ExecutorsExit"): "The driver's log says how, in Spark's words.",
    ("ExecutorsLost", "True", "ExecutorsSilent"): "Look at their nodes, and at the network.",
    ("CostsTrusted", "False", "EstimatesOff"): (
        "Give it a cost key that tells costs better, and make sure that the function works while "
        "it reads its input. The message names the shuffle and both errors."
    ),
    ("ScalingLimited", "True", "OutOfBounds"): "Change the limits.",
    ("ScalingLimited", "True", "AtLimit"): (
        "If a backlog grows: raise the limit of executors that the message names, or max."
    ),
    ("ScalingLimited", "True", "SharedLimit"): (
        "Wait until others need less, or let the operator's administrator raise the limit that "
        "the message names."
    ),
    ("FloorKnown", "False", ""): (
        "Correct executors.minQuery, or see why Prometheus does not answer it."
    ),
    ("ScalingLimited", "True", "SourceBound"): (
        "Give the source more splits (Kafka: topic partitions, or minPartitions), or repartition "
        "before the costly step; raise a limit of rows (maxOffsetsPerTrigger) that the message "
        "names."
    ),
    ("ScalingLimited", "True", "PartitionBound"): (
        "Start a new checkpoint with a higher spark.sql.shuffle.partitions."
    ),
    ("ScalingLimited", "True", "DriverBound"): (
        "Use larger and fewer batches (a longer trigger interval), or do less on the driver."
    ),
    ("ScalingLimited", "True", "DynamicAllocation"): (
        'Switch dynamic allocation off in the application, or set scaling.mode to "Off".'
    ),
    ("ScalingLimited", "True", "ExecutorsPending"): (
        "Add nodes, raise the quota, or correct what they name. If nothing is named, see the "
        "driver's log."
    ),
    ("DriverOutdated", "True", "WaitsForTurn"): "Nothing; its turn comes.",
    ("DriverOutdated", "True", ""): (
        "When it suits: kubectl annotate bst NAME --overwrite "
        'balancedstream.io/restart="$(date)". The next change of the spec that needs a new driver '
        "does the same."
    ),
    ("PlanRefused", "True", ""): (
        "If it stays: an unknown field means that the image has an older release than the "
        "operator; an epoch that is too old means that somebody wrote a plan, and a new driver "
        "pod helps."
    ),
    ("PassFailed", "True", ""): (
        "ClusterError: the API server does not answer, or refuses something. Any other: report "
        "it, with the operator's log."
    ),
    ("Suspended", "True", ""): "Set it back.",
    ("Paused", "True", ""): "Resume it: kubectl bst resume NAME.",
}


def find_remedy(kind: str, state: str, reason: str) -> str:
    """What to do about a condition; empty if nothing has to be done.

    Args:
        kind: its type.
        state: True, False or Unknown.
        reason: its reason.

    >>> find_remedy("MetricsAvailable", "False", "Missing")[:13]
    'Check the URL'
    >>> find_remedy("Balanced", "False", "Skewed")
    ''
    """
    return _REMEDIES.get((kind, state, reason)) or _REMEDIES.get((kind, state, ""), "")
