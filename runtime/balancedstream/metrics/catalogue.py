"""Every metric that a driver serves: its labels and its help text."""

from __future__ import annotations

from typing import NamedTuple

BATCH_DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the batch duration histogram, seconds; +Inf follows."""


class Series(NamedTuple):
    """The labels and the help text of one metric."""

    labels: tuple[str, ...]
    help: str


QUERY = ("query",)
_OPERATOR = ("query", "operator")
_EXECUTOR = ("query", "operator", "executor")
_PARTITION = ("query", "operator", "partition")
_KEY = ("query", "operator", "partition", "key")
_SHUFFLE = ("shuffle",)
_SHUFFLE_PARTITION = ("shuffle", "shuffle_partition")

PREFIX = "balancedstream_"

# Names that end in `_total` are counters, the others gauges.
METRICS = {
    "build_info": Series(
        ("version", "spark_version", "python_version"), "Always 1; the labels say what runs here."
    ),
    "plan_epoch": Series((), "Epoch of the plan in force; 0 before the first one."),
    "moves_total": Series((), "Moves of state partitions that were begun."),
    "moves_settled_total": Series((), "Moves whose partition ran on its target."),
    "key_moves_total": Series((), "Keys that were to go to another state partition."),
    "key_moves_settled_total": Series((), "Keys that came there, with their state."),
    "move_fixed_seconds": Series((), "What loading a moved partition costs, however small it is."),
    "move_bytes_per_second": Series((), "How fast state beyond that is loaded."),
    "move_key_seconds": Series((), "What a key costs where it leaves, or comes to, a partition."),
    "scale_actions_total": Series(
        ("direction",), "Changes of the number of executors asked for: out adds, in removes."
    ),
    "executors": Series((), "Executors that take work."),
    "executors_wanted": Series((), "Executors asked for; absent until the first scale action."),
    "executor_cores": Series(("executor",), "Cores of a live executor."),
    "batches_total": Series(QUERY, "Finished micro-batches."),
    "last_batch_id": Series(QUERY, "Number of the last finished micro-batch."),
    "last_batch_timestamp_seconds": Series(
        QUERY, "When the last micro-batch finished, since the Unix epoch."
    ),
    "last_batch_duration_seconds": Series(
        QUERY, "Trigger execution of the last finished micro-batch."
    ),
    "input_rows_total": Series(QUERY, "Rows read from the sources."),
    "input_rows_per_second": Series(
        QUERY,
        "Rows of the last batch per second from the previous batch's start to its own; absent "
        "until a second batch.",
    ),
    "processed_rows_per_second": Series(
        QUERY, "Rows of the last batch per second of its duration."
    ),
    "backlog_rows": Series(QUERY, "Rows that wait at the sources; absent where no source says."),
    "keys_under_way": Series(
        QUERY, "Keys that are not yet where they shall be; absent where no key is balanced."
    ),
    "last_key_arrival_batch": Series(
        QUERY, "Last batch in which keys came to other state partitions; absent before the first."
    ),
    "task_failures_total": Series(QUERY, "Task attempts that failed; Spark tries them again."),
    "decisions_total": Series(
        (*_OPERATOR, "kind"),
        "Balancing decisions by what they came to: move, scale, unsplittable, hold or none.",
    ),
    "imbalance_ratio": Series(
        _OPERATOR, "Busy time per core of the hottest executor over the mean; 1 is level."
    ),
    "imbalance_bound_ratio": Series(
        _OPERATOR, "The least imbalance that any placement of the partitions could reach."
    ),
    "moves_under_way": Series(_OPERATOR, "State partitions that are not yet where they shall be."),
    "partitions": Series(_OPERATOR, "State partitions that ran so far."),
    "partitions_hidden": Series(
        _OPERATOR, "State partitions that have no series of their own, to bound their number."
    ),
    "executor_busy_seconds_total": Series(
        _EXECUTOR, "Run time of the operator's tasks on a live executor, loading of state included."
    ),
    "executor_state_restore_seconds_total": Series(
        _EXECUTOR, "The part of the executor's busy seconds that went into loading state."
    ),
    "executor_records_total": Series(
        _EXECUTOR, "Rows that the operator's tasks on a live executor read from the shuffle."
    ),
    "executor_state_bytes": Series(
        _EXECUTOR, "Size of the state of the partitions that ran last on a live executor."
    ),
    "executor_partitions": Series(_EXECUTOR, "State partitions that ran last on a live executor."),
    "hot_key_busy_seconds": Series(
        _KEY, "What one of the hottest keys of a balanced operator took in the last batch."
    ),
    "partition_busy_seconds_total": Series(
        _PARTITION, "Run time of the partition's tasks, loading of state included."
    ),
    "partition_state_restore_seconds_total": Series(
        _PARTITION, "The part of the partition's busy seconds that went into loading state."
    ),
    "partition_records_total": Series(
        _PARTITION, "Rows that the partition's tasks read from the shuffle."
    ),
    "partition_state_bytes": Series(
        _PARTITION, "Size of the partition's state after its last batch."
    ),
    "shuffle_batches_total": Series(
        (*_SHUFFLE, "routed"), "Micro-batches of a cost-aware shuffle: by estimates or round robin."
    ),
    "shuffle_trusted": Series(
        _SHUFFLE, "1 where the next micro-batch is routed by estimated costs, 0 for round robin."
    ),
    "shuffle_untrusted_batches": Series(
        _SHUFFLE,
        "Micro-batches in a row after whose judgement the estimates were not trusted; 0 where they "
        "are.",
    ),
    "shuffle_estimate_error_ratio": Series(
        _SHUFFLE,
        "Error of the estimates in the last batch that judged them, as a part of all cost.",
    ),
    "shuffle_equal_error_ratio": Series(
        _SHUFFLE, "The same error if all rows were taken to cost the same: what round robin does."
    ),
    "shuffle_imbalance_ratio": Series(
        _SHUFFLE, "Real load of the dearest partition of the last batch over the mean; 1 is level."
    ),
    "shuffle_estimated_seconds_total": Series(
        _SHUFFLE_PARTITION, "Load of one partition of the shuffle by the estimates."
    ),
    "shuffle_real_seconds_total": Series(
        _SHUFFLE_PARTITION, "What the function took for the rows of one partition of the shuffle."
    ),
    "partition_executor_info": Series(
        (*_PARTITION, "executor"), "Always 1; the executor that ran the partition last."
    ),
}

BATCH_DURATION = "batch_duration_seconds"
BATCH_DURATION_HELP = "Trigger execution of finished micro-batches, planning and commit included."

SERIES_PER_PARTITION = sum(name.startswith("partition_") for name in METRICS)
"""How many series a shown partition has."""
