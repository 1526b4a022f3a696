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
_STAGE = ("query", "kind")
_SHUFFLE = ("shuffle",)
_SHUFFLE_PARTITION = ("shuffle", "shuffle_partition")

PREFIX = "balancedstream_"

# Names that end in `_total` are counters, the others gauges.
METRICS = {
    "build_info": Series(
        ("version", "spark_version", "python_version"), "Always 1; the labels say what runs here."
    ),
    "plan_epoch": Series((), "Epoch of the plan in force; 0 before the first one."),
    "moves_total": Series((), "Moves of state partitions that have begun."),
    "moves_settled_total": Series((), "Moves whose partition has run on its target executor."),
    "preparations_total": Series(
        ("outcome",),
        "Partitions whose state was loaded ahead of their move, by outcome: used by the moved "
        "task, wasted, or failed, so that the task loaded it itself.",
    ),
    "prepared_bytes_total": Series(("outcome",), "Size of the state that they loaded."),
    "prepared_seconds_total": Series(
        ("outcome",), "Time that their targets loaded it, beside the batches."
    ),
    "key_moves_total": Series((), "Keys assigned to another state partition."),
    "key_moves_settled_total": Series(
        (), "Keys that reached their target partition, with their state."
    ),
    "move_fixed_seconds": Series(
        (), "Fixed time to restore a moved partition, however small its state is."
    ),
    "move_bytes_per_second": Series(
        (), "Rate at which the state of a moved partition is restored, beside the fixed time."
    ),
    "move_key_seconds": Series(
        (), "Time that one key costs the partition it leaves, or the one it enters."
    ),
    "scale_actions_total": Series(
        ("direction",), "Changes of the requested number of executors: out adds, in removes."
    ),
    "executor_losses_total": Series(
        ("cause",),
        "Executors lost without being asked to go: memory (the container's limit), heap "
        "(OutOfMemoryError), exit (another end of the JVM), silence (no answer any more).",
    ),
    "executors": Series((), "Executors that take work."),
    "executors_wanted": Series((), "Executors requested; absent before the first scale action."),
    "executors_advised": Series(
        (), "Executors that there should be; absent unless scaling only advises."
    ),
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
        "Rows of the last batch per second between the previous batch's start and its own; "
        "absent before the second batch.",
    ),
    "processed_rows_per_second": Series(
        QUERY, "Rows of the last batch per second of its duration."
    ),
    "backlog_rows": Series(
        QUERY, "Rows that wait at the sources; absent where no source reports them."
    ),
    "trigger_interval_seconds": Series(
        QUERY, "Trigger interval of the query; absent where it has none."
    ),
    "query_idle_timestamp_seconds": Series(
        QUERY,
        "When Spark last said that the query waits for data, since the Unix epoch; absent before.",
    ),
    "driver_seconds_total": Series(
        (*QUERY, "part"),
        "Time of batches in which no task ran, by part: offsets, planning, commits, or gaps, which "
        "is all else.",
    ),
    "stage_tasks_total": Series(
        _STAGE,
        "Sum over batches of the tasks that can run at the same time, by kind of stage: source, "
        "stateful, or sink, which is what follows a shuffle without state.",
    ),
    "stage_longest_task_seconds_total": Series(
        _STAGE, "Sum over batches of the longest task, restoring of state left out."
    ),
    "stage_busy_seconds_total": Series(
        (*_STAGE, "executor"),
        "Run time of all tasks on a live executor, restoring of state left out.",
    ),
    "keys_under_way": Series(
        QUERY, "Keys that are not yet in their target partition; absent where no key is balanced."
    ),
    "last_key_arrival_batch": Series(
        QUERY, "Last batch in which keys reached their target partition; absent before the first."
    ),
    "task_failures_total": Series(QUERY, "Failed task attempts; Spark retries them."),
    "decisions_total": Series(
        (*_OPERATOR, "kind"),
        "Balancing decisions by kind: move, scale, advise, limited, hold or none.",
    ),
    "imbalance_ratio": Series(
        _OPERATOR, "Busy time per core of the hottest executor over the mean; 1 is balanced."
    ),
    "imbalance_bound_ratio": Series(
        _OPERATOR, "The least imbalance that any placement of the partitions can reach."
    ),
    "moves_under_way": Series(
        _OPERATOR, "State partitions that are not yet on their target executor."
    ),
    "moves_preparing": Series(
        _OPERATOR, "The part of these whose target executor loads their state, beside the batches."
    ),
    "moves_prepared": Series(
        _OPERATOR,
        "1 if state is loaded ahead of moves, so that no batch waits for it; 0 if not, or unknown.",
    ),
    "partitions": Series(_OPERATOR, "State partitions that have run so far."),
    "partitions_hidden": Series(
        _OPERATOR, "State partitions without series of their own, beyond the limit on series."
    ),
    "operator_busy_seconds_total": Series(
        _OPERATOR,
        "Run time of all tasks of the operator, restoring of state included; shown or not, "
        "wherever they ran.",
    ),
    "operator_state_load_seconds_total": Series(
        _OPERATOR, "The part of the operator's busy seconds spent on restoring state."
    ),
    "operator_records_total": Series(
        _OPERATOR, "Rows that all tasks of the operator read from the shuffle."
    ),
    "executor_busy_seconds_total": Series(
        _EXECUTOR,
        "Run time of the operator's tasks on a live executor, restoring of state included.",
    ),
    "executor_state_load_seconds_total": Series(
        _EXECUTOR, "The part of the executor's busy seconds spent on restoring state."
    ),
    "executor_records_total": Series(
        _EXECUTOR, "Rows that the operator's tasks on a live executor read from the shuffle."
    ),
    "executor_state_bytes": Series(
        _EXECUTOR, "Size of the state of the partitions that last ran on a live executor."
    ),
    "executor_partitions": Series(_EXECUTOR, "State partitions that last ran on a live executor."),
    "hot_key_busy_seconds": Series(
        _KEY, "Time that one of the hottest keys of a balanced operator took in the last batch."
    ),
    "partition_busy_seconds_total": Series(
        _PARTITION, "Run time of the partition's tasks, restoring of state included."
    ),
    "partition_state_load_seconds_total": Series(
        _PARTITION, "The part of the partition's busy seconds spent on restoring state."
    ),
    "partition_records_total": Series(
        _PARTITION, "Rows that the partition's tasks read from the shuffle."
    ),
    "partition_state_bytes": Series(
        _PARTITION, "Size of the partition's state after its last batch."
    ),
    "shuffle_batches_total": Series(
        (*_SHUFFLE, "routed"),
        "Micro-batches of a cost-aware shuffle, routed by estimates or round robin.",
    ),
    "shuffle_trusted": Series(
        _SHUFFLE, "1 if the next micro-batch is routed by estimated costs, 0 if round robin."
    ),
    "shuffle_untrusted_batches": Series(
        _SHUFFLE,
        "Micro-batches in a row that left the estimates untrusted; 0 while they are trusted.",
    ),
    "shuffle_estimate_error_ratio": Series(
        _SHUFFLE,
        "Error of the estimates in the last batch that judged them, as a part of the total cost.",
    ),
    "shuffle_equal_error_ratio": Series(
        _SHUFFLE, "The same error if all rows had the same estimate, as round robin assumes."
    ),
    "shuffle_imbalance_ratio": Series(
        _SHUFFLE,
        "Real load of the most loaded partition of the last batch over the mean; 1 is balanced.",
    ),
    "shuffle_estimated_seconds_total": Series(
        _SHUFFLE_PARTITION, "Estimated load of one partition of the shuffle."
    ),
    "shuffle_real_seconds_total": Series(
        _SHUFFLE_PARTITION,
        "Time that the function took for the rows of one partition of the shuffle.",
    ),
    "partition_executor_info": Series(
        (*_PARTITION, "executor"), "Always 1; the executor that last ran the partition."
    ),
}

BATCH_DURATION = "batch_duration_seconds"
BATCH_DURATION_HELP = "Trigger execution of finished micro-batches, planning and commit included."

SERIES_PER_PARTITION = sum(name.startswith("partition_") for name in METRICS)
"""How many series a shown partition has."""
