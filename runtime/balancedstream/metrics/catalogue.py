"""Every metric that a driver serves, and its help text."""

from __future__ import annotations

from balancedstream.core.wire import series as wire

BATCH_DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the batch duration histogram, seconds; +Inf follows."""

_OPERATOR = (wire.QUERY, wire.OPERATOR)
_EXECUTOR = (*_OPERATOR, wire.EXECUTOR)

# Metrics for people only; those that decisions are made from are in `core.wire.series`.
BUILD_INFO = wire.Metric("balancedstream_build_info", "version", "spark_version", "python_version")
MOVES = wire.Metric("balancedstream_moves_total")
MOVES_SETTLED = wire.Metric("balancedstream_moves_settled_total")
KEY_MOVES = wire.Metric("balancedstream_key_moves_total")
KEY_MOVES_SETTLED = wire.Metric("balancedstream_key_moves_settled_total")
SCALE_ACTIONS = wire.Metric("balancedstream_scale_actions_total", "direction")
EXECUTORS_WANTED = wire.Metric("balancedstream_executors_wanted")
EXECUTORS_ADVISED = wire.Metric("balancedstream_executors_advised")
COST_PER_DAY = wire.Metric("balancedstream_cost_per_day", "part", "currency")
INPUT_ROWS_PER_SECOND = wire.Metric("balancedstream_input_rows_per_second", wire.QUERY)
PROCESSED_ROWS_PER_SECOND = wire.Metric("balancedstream_processed_rows_per_second", wire.QUERY)
TASK_FAILURES = wire.Metric("balancedstream_task_failures_total", wire.QUERY)
DECISIONS = wire.Metric("balancedstream_decisions_total", *_OPERATOR, wire.KIND)
IMBALANCE_RATIO = wire.Metric("balancedstream_imbalance_ratio", *_OPERATOR)
IMBALANCE_BOUND_RATIO = wire.Metric("balancedstream_imbalance_bound_ratio", *_OPERATOR)
PARTITIONS = wire.Metric("balancedstream_partitions", *_OPERATOR)
OPERATOR_RECORDS = wire.Metric("balancedstream_operator_records_total", *_OPERATOR)
EXECUTOR_RECORDS = wire.Metric("balancedstream_executor_records_total", *_EXECUTOR)
EXECUTOR_PARTITIONS = wire.Metric("balancedstream_executor_partitions", *_EXECUTOR)
STATE_MEMORY = wire.Metric("balancedstream_executor_state_memory_bytes", *_EXECUTOR)
STATE_PINNED = wire.Metric("balancedstream_executor_state_pinned_bytes", *_EXECUTOR)
STATE_READS = wire.Metric("balancedstream_executor_state_reads_total", *_EXECUTOR)
STATE_READ_SECONDS = wire.Metric("balancedstream_executor_state_read_seconds_total", *_EXECUTOR)
STATE_CACHE_HITS = wire.Metric("balancedstream_executor_state_cache_hits_total", *_EXECUTOR)
STATE_CACHE_MISSES = wire.Metric("balancedstream_executor_state_cache_misses_total", *_EXECUTOR)
SHUFFLE_BATCHES = wire.Metric("balancedstream_shuffle_batches_total", wire.SHUFFLE, "routed")
SHUFFLE_IMBALANCE_RATIO = wire.Metric("balancedstream_shuffle_imbalance_ratio", wire.SHUFFLE)
SHUFFLE_ESTIMATED_SECONDS = wire.Metric(
    "balancedstream_shuffle_estimated_seconds_total", wire.SHUFFLE, "shuffle_partition"
)
SHUFFLE_REAL_SECONDS = wire.Metric(
    "balancedstream_shuffle_real_seconds_total", wire.SHUFFLE, "shuffle_partition"
)

# Names that end in `_total` are counters, the others gauges.
METRICS: dict[wire.Metric, str] = {
    BUILD_INFO: "Always 1; the labels say what runs here.",
    wire.PLAN_EPOCH: "Epoch of the plan in force; 0 before the first one.",
    MOVES: "Moves of state partitions that have begun.",
    MOVES_SETTLED: "Moves whose partition has run on its target executor.",
    wire.PREPARATIONS: (
        "Partitions whose state was loaded ahead of their move, by outcome: used by the moved "
        "task, wasted, or failed, so that the task loaded it itself."
    ),
    wire.PREPARED_BYTES: "Size of the state that they loaded.",
    wire.PREPARED_SECONDS: "Time that their targets loaded it, beside the batches.",
    KEY_MOVES: "Keys assigned to another state partition.",
    KEY_MOVES_SETTLED: "Keys that reached their target partition, with their state.",
    wire.MOVE_FIXED_SECONDS: "Fixed time to restore a moved partition, however small its state is.",
    wire.MOVE_BYTES_PER_SECOND: (
        "Rate at which the state of a moved partition is restored, beside the fixed time."
    ),
    wire.MOVE_KEY_SECONDS: "Time that one key costs the partition it leaves, or the one it enters.",
    SCALE_ACTIONS: "Changes of the requested number of executors: out adds, in removes.",
    wire.EXECUTOR_LOSSES: (
        "Executors lost without being asked to go: memory (the container's limit), heap "
        "(OutOfMemoryError), exit (another end of the JVM), silence (no answer any more)."
    ),
    wire.EXECUTORS: "Executors that take work.",
    EXECUTORS_WANTED: "Executors requested; absent before the first scale action.",
    EXECUTORS_ADVISED: "Executors that there should be; absent unless scaling only advises.",
    COST_PER_DAY: (
        "Money that the executors of now cost a day, by part: spent, or saved beside a fixed size "
        "of scaling.max_executors; absent without a price."
    ),
    wire.EXECUTOR_CORES: "Cores of a live executor.",
    wire.EXECUTOR_MEMORY: (
        "Memory of a live executor by part, at its last heartbeat: heap (objects), off_heap (the "
        "JVM's own), python, rocksdb, resident (all processes, of which the others are parts; "
        "python and resident are 0 unless processes are measured), and state (its size on disk)."
    ),
    wire.EXECUTOR_MEMORY_LIMIT: (
        "What an executor may take, by part: executor (beyond it, it is killed), heap, rocksdb; 0 "
        "where nothing limits it."
    ),
    wire.STATE_MEMORY_GROWTH: (
        "Growth of RocksDB's memory over all executors in the last hours; absent in the first half "
        "hour."
    ),
    wire.BATCHES: "Finished micro-batches.",
    wire.LAST_BATCH_ID: "Number of the last finished micro-batch.",
    wire.LAST_BATCH_TIMESTAMP: "When the last micro-batch finished, since the Unix epoch.",
    wire.LAST_BATCH_DURATION: "Trigger execution of the last finished micro-batch.",
    wire.INPUT_ROWS: "Rows read from the sources.",
    INPUT_ROWS_PER_SECOND: (
        "Rows of the last batch per second between the previous batch's start and its own; "
        "absent before the second batch."
    ),
    PROCESSED_ROWS_PER_SECOND: "Rows of the last batch per second of its duration.",
    wire.BACKLOG_ROWS: "Rows that wait at the sources; absent where no source reports them.",
    wire.SLOTS_NEEDED: (
        "Slots that a query in Real-Time Mode (`trigger` is `real-time`) or under continuous "
        "processing (`continuous`) needs at once, 0 until one of its batches was seen to begin; "
        "absent for other queries."
    ),
    wire.SLOTS_HELD: "Slots of each executor that such a query holds.",
    wire.TRIGGER_INTERVAL: "Trigger interval of the query; absent where it has none.",
    wire.QUERY_IDLE_TIMESTAMP: (
        "When Spark last said that the query waits for data, since the Unix epoch; absent before."
    ),
    wire.DRIVER_SECONDS: (
        "Time of batches in which no task ran, by part: offsets, planning, commits, or gaps, which "
        "is all else."
    ),
    wire.STAGE_TASKS: (
        "Sum over batches of the tasks that can run at the same time, by kind of stage: source, "
        "stateful, or sink, which is what follows a shuffle without state."
    ),
    wire.STAGE_LONGEST_TASK: "Sum over batches of the longest task, restoring of state left out.",
    wire.STAGE_BUSY: "Run time of all tasks on a live executor, restoring of state left out.",
    wire.KEYS_UNDER_WAY: (
        "Keys that are not yet in their target partition; absent where no key is balanced."
    ),
    wire.LAST_KEY_ARRIVAL: (
        "Last batch in which keys reached their target partition; absent before the first."
    ),
    TASK_FAILURES: "Failed task attempts; Spark retries them.",
    DECISIONS: "Balancing decisions by kind: move, scale, advise, limited, hold or none.",
    IMBALANCE_RATIO: "Busy time per core of the hottest executor over the mean; 1 is balanced.",
    IMBALANCE_BOUND_RATIO: "The least imbalance that any placement of the partitions can reach.",
    wire.MOVES_UNDER_WAY: "State partitions that are not yet on their target executor.",
    wire.MOVES_PREPARING: (
        "The part of these whose target executor loads their state, beside the batches."
    ),
    wire.MOVES_PREPARED: (
        "1 if state is loaded ahead of moves, so that no batch waits for it; 0 if not, or unknown."
    ),
    PARTITIONS: "State partitions that have run so far.",
    wire.PARTITIONS_HIDDEN: (
        "State partitions without series of their own, beyond the limit on series."
    ),
    wire.OPERATOR_BUSY: (
        "Run time of all tasks of the operator, restoring of state included; shown or not, "
        "wherever they ran."
    ),
    wire.OPERATOR_STATE_LOAD: "The part of the operator's busy seconds spent on restoring state.",
    OPERATOR_RECORDS: "Rows that all tasks of the operator read from the shuffle.",
    wire.STATE_READ: (
        "Time of a read of one key from RocksDB in the last batches; absent with few reads."
    ),
    wire.STATE_READ_LEAST: "The least that it took over as many batches, since the driver began.",
    wire.STATE_READ_MISSES: "Blocks for each read that came from a file, and not from the cache.",
    wire.STATE_READ_DELAY: "Time by which a batch is longer than if reads took the least.",
    wire.STATE_READ_BATCH: "Mean time of the batches that these five metrics are of.",
    wire.EXECUTOR_BUSY: (
        "Run time of the operator's tasks on a live executor, restoring of state included."
    ),
    wire.EXECUTOR_STATE_LOAD: "The part of the executor's busy seconds spent on restoring state.",
    EXECUTOR_RECORDS: "Rows that the operator's tasks on a live executor read from the shuffle.",
    wire.EXECUTOR_STATE_BYTES: (
        "Size of the state of the partitions that last ran on a live executor."
    ),
    STATE_MEMORY: "RocksDB's memory in the last batch: memtables, block caches and indexes.",
    STATE_PINNED: "The part of it that is pinned in block caches.",
    STATE_READS: "Reads of a key from RocksDB.",
    STATE_READ_SECONDS: "Time that they took.",
    STATE_CACHE_HITS: "Blocks that reads found in RocksDB's cache.",
    STATE_CACHE_MISSES: "Blocks that reads had to read from a file.",
    EXECUTOR_PARTITIONS: "State partitions that last ran on a live executor.",
    wire.HOT_KEY_BUSY: (
        "Time that one of the hottest keys of a balanced operator took in the last batch."
    ),
    wire.PARTITION_BUSY: "Run time of the partition's tasks, restoring of state included.",
    wire.PARTITION_STATE_LOAD: "The part of the partition's busy seconds spent on restoring state.",
    wire.PARTITION_RECORDS: "Rows that the partition's tasks read from the shuffle.",
    wire.PARTITION_STATE_BYTES: "Size of the partition's state after its last batch.",
    SHUFFLE_BATCHES: "Micro-batches of a cost-aware shuffle, routed by estimates or round robin.",
    wire.SHUFFLE_TRUSTED: (
        "1 if the next micro-batch is routed by estimated costs, 0 if round robin."
    ),
    wire.SHUFFLE_UNTRUSTED_BATCHES: (
        "Micro-batches in a row that left the estimates untrusted; 0 while they are trusted."
    ),
    wire.SHUFFLE_ERROR: (
        "Error of the estimates in the last batch that judged them, as a part of the total cost."
    ),
    wire.SHUFFLE_EQUAL_ERROR: (
        "The same error if all rows had the same estimate, as round robin assumes."
    ),
    SHUFFLE_IMBALANCE_RATIO: (
        "Real load of the most loaded partition of the last batch over the mean; 1 is balanced."
    ),
    SHUFFLE_ESTIMATED_SECONDS: "Estimated load of one partition of the shuffle.",
    SHUFFLE_REAL_SECONDS: (
        "Time that the function took for the rows of one partition of the shuffle."
    ),
    wire.PARTITION_EXECUTOR: "Always 1; the executor that last ran the partition.",
}

BATCH_DURATION_HELP = "Trigger execution of finished micro-batches, planning and commit included."

SERIES_PER_PARTITION = sum(
    wire.PARTITION in metric.labels and wire.KEY not in metric.labels for metric in METRICS
)
"""How many series a shown partition has."""
