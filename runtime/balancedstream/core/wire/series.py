"""The series that decisions are made from: a driver serves them, and the operator reads them.

Names and labels stay as they are from one release to the next: an operator reads drivers of other
releases, and people have dashboards and alerts.
"""

from __future__ import annotations

from typing import Self


class Metric(str):
    """The name of a metric, which also knows its labels.

    Attributes:
        labels: names of its labels beside `STREAM`, which every series of a BalancedStream has.

    >>> BATCHES, BATCHES.labels
    ('balancedstream_batches_total', ('query',))
    """

    __slots__ = ("labels",)
    labels: tuple[str, ...]

    def __new__(cls, name: str, *labels: str) -> Self:
        """Makes a metric of its full name and the names of its labels."""
        metric = super().__new__(cls, name)
        metric.labels = labels
        return metric


STREAM = "stream"
QUERY = "query"
OPERATOR = "operator"
PARTITION = "partition"
EXECUTOR = "executor"
KEY = "key"
KIND = "kind"
PART = "part"
CAUSE = "cause"
OUTCOME = "outcome"
SHUFFLE = "shuffle"
TRIGGER = "trigger"

HEAP, OFF_HEAP, PYTHON, ROCKSDB = "heap", "off_heap", "python", "rocksdb"
RESIDENT, STATE, WHOLE = "resident", "state", "executor"
"""Values of the label `PART` of an executor's memory, and of its limits."""

DRIVER_PARTS = OFFSETS, PLANNING, COMMITS, GAPS = "offsets", "planning", "commits", "gaps"
"""The same of the driver's time."""

PLAN_EPOCH = Metric("balancedstream_plan_epoch")
"""Every driver serves it from its start."""
EXECUTORS = Metric("balancedstream_executors")
EXECUTOR_CORES = Metric("balancedstream_executor_cores", EXECUTOR)
EXECUTOR_LOSSES = Metric("balancedstream_executor_losses_total", CAUSE)
EXECUTOR_MEMORY = Metric("balancedstream_executor_memory_bytes", EXECUTOR, PART)
EXECUTOR_MEMORY_LIMIT = Metric("balancedstream_executor_memory_limit_bytes", PART)
STATE_MEMORY_GROWTH = Metric("balancedstream_state_memory_growth_bytes_per_second")
MOVE_FIXED_SECONDS = Metric("balancedstream_move_fixed_seconds")
MOVE_BYTES_PER_SECOND = Metric("balancedstream_move_bytes_per_second")
MOVE_KEY_SECONDS = Metric("balancedstream_move_key_seconds")
PREPARATIONS = Metric("balancedstream_preparations_total", OUTCOME)
PREPARED_BYTES = Metric("balancedstream_prepared_bytes_total", OUTCOME)
PREPARED_SECONDS = Metric("balancedstream_prepared_seconds_total", OUTCOME)

BATCHES = Metric("balancedstream_batches_total", QUERY)
BATCH_DURATION = Metric("balancedstream_batch_duration_seconds", QUERY)
"""A histogram."""
BATCH_DURATION_SUM = Metric(f"{BATCH_DURATION}_sum", QUERY)
LAST_BATCH_ID = Metric("balancedstream_last_batch_id", QUERY)
LAST_BATCH_TIMESTAMP = Metric("balancedstream_last_batch_timestamp_seconds", QUERY)
LAST_BATCH_DURATION = Metric("balancedstream_last_batch_duration_seconds", QUERY)
INPUT_ROWS = Metric("balancedstream_input_rows_total", QUERY)
BACKLOG_ROWS = Metric("balancedstream_backlog_rows", QUERY)
TRIGGER_INTERVAL = Metric("balancedstream_trigger_interval_seconds", QUERY)
QUERY_IDLE_TIMESTAMP = Metric("balancedstream_query_idle_timestamp_seconds", QUERY)
DRIVER_SECONDS = Metric("balancedstream_driver_seconds_total", QUERY, PART)
SLOTS_NEEDED = Metric("balancedstream_slots_needed", QUERY, TRIGGER)
"""Of queries in Real-Time Mode or under continuous processing only; 0 if unknown."""
SLOTS_HELD = Metric("balancedstream_slots_held", QUERY, EXECUTOR)
KEYS_UNDER_WAY = Metric("balancedstream_keys_under_way", QUERY)
LAST_KEY_ARRIVAL = Metric("balancedstream_last_key_arrival_batch", QUERY)

STAGE_TASKS = Metric("balancedstream_stage_tasks_total", QUERY, KIND)
STAGE_LONGEST_TASK = Metric("balancedstream_stage_longest_task_seconds_total", QUERY, KIND)
STAGE_BUSY = Metric("balancedstream_stage_busy_seconds_total", QUERY, KIND, EXECUTOR)

_OF_OPERATOR = (QUERY, OPERATOR)
MOVES_UNDER_WAY = Metric("balancedstream_moves_under_way", *_OF_OPERATOR)
MOVES_PREPARING = Metric("balancedstream_moves_preparing", *_OF_OPERATOR)
MOVES_PREPARED = Metric("balancedstream_moves_prepared", *_OF_OPERATOR)
PARTITIONS_HIDDEN = Metric("balancedstream_partitions_hidden", *_OF_OPERATOR)
OPERATOR_BUSY = Metric("balancedstream_operator_busy_seconds_total", *_OF_OPERATOR)
OPERATOR_STATE_LOAD = Metric("balancedstream_operator_state_load_seconds_total", *_OF_OPERATOR)
STATE_READ = Metric("balancedstream_state_read_seconds", *_OF_OPERATOR)
STATE_READ_LEAST = Metric("balancedstream_state_read_least_seconds", *_OF_OPERATOR)
STATE_READ_MISSES = Metric("balancedstream_state_read_misses", *_OF_OPERATOR)
STATE_READ_DELAY = Metric("balancedstream_state_read_delay_seconds", *_OF_OPERATOR)
STATE_READ_BATCH = Metric("balancedstream_state_read_batch_seconds", *_OF_OPERATOR)

_OF_EXECUTOR = (*_OF_OPERATOR, EXECUTOR)
EXECUTOR_BUSY = Metric("balancedstream_executor_busy_seconds_total", *_OF_EXECUTOR)
EXECUTOR_STATE_LOAD = Metric("balancedstream_executor_state_load_seconds_total", *_OF_EXECUTOR)
EXECUTOR_STATE_BYTES = Metric("balancedstream_executor_state_bytes", *_OF_EXECUTOR)

_OF_PARTITION = (*_OF_OPERATOR, PARTITION)
PARTITION_BUSY = Metric("balancedstream_partition_busy_seconds_total", *_OF_PARTITION)
PARTITION_STATE_LOAD = Metric("balancedstream_partition_state_load_seconds_total", *_OF_PARTITION)
PARTITION_RECORDS = Metric("balancedstream_partition_records_total", *_OF_PARTITION)
PARTITION_STATE_BYTES = Metric("balancedstream_partition_state_bytes", *_OF_PARTITION)
PARTITION_EXECUTOR = Metric("balancedstream_partition_executor_info", *_OF_PARTITION, EXECUTOR)
HOT_KEY_BUSY = Metric("balancedstream_hot_key_busy_seconds", *_OF_PARTITION, KEY)

SHUFFLE_TRUSTED = Metric("balancedstream_shuffle_trusted", SHUFFLE)
SHUFFLE_UNTRUSTED_BATCHES = Metric("balancedstream_shuffle_untrusted_batches", SHUFFLE)
SHUFFLE_ERROR = Metric("balancedstream_shuffle_estimate_error_ratio", SHUFFLE)
SHUFFLE_EQUAL_ERROR = Metric("balancedstream_shuffle_equal_error_ratio", SHUFFLE)
