"""The targets of the benchmarks: what the pages in `docs/benchmarks/` call met or not."""

from __future__ import annotations

MAX_OVER_BOUND = 1.10
"""An imbalance of at most this many times its bound is called balanced."""

SETTLING_BATCHES = 5
"""Batches after a change within which the load has to be balanced again."""

MAX_BALANCED_OVER_VANILLA = {1.0: 0.80, 0.0: 1.02}
"""Batch time of Spark balanced over that of Spark alone, by the exponent of Zipf's law."""

MAX_ATTACHED_OVER_VANILLA = 1.02
"""Batch time with an attached but idle loop over that without."""

MAX_LOOP_S = 0.5
"""CPU time of the driver's Python for a batch, also one of 3 x 10,000 partitions."""

MIGRATION_BUDGET_S = 1.0
"""The default of `migration.budget_s`."""

MAX_ADDED_OVER_BUDGET = 1.3
"""What a move within the budget adds to the longest batch, over the budget."""

MAX_SLOWEST_UNMOVED = 1.5
"""The slowest unmoved task of a migration over that of a steady batch."""

MAX_PREPARED = 1.10
"""The longest batch, and the slowest unmoved task, of moves whose state is loaded ahead, over those
of a steady batch."""

MIN_SHARE = 0.8
"""A new executor that is busy for this part of the mean carries its share."""

SHARING_BATCHES = 3
"""Batches from the moment that new executors count until each carries its share."""

MAX_GROWING = 1.25
"""The longest batch while executors join over the median one before."""

MAX_HYBRID_OVER_EAGER = 0.5
"""The longest batch of a hybrid handoff over that of an eager one."""

MAX_BALANCED_OVER_OWN = 1.10
"""Batch time of `balanced(...)` over Spark's own where no key moves."""

MAX_KEYS_OVER_BOUND = 1.05
"""Imbalance over its bound where keys are reassigned."""

MAX_OVER_KNOWING = 1.05
"""Batch time of the cost-aware shuffle over that of an all-knowing scheduler."""

MAX_OVER_ROUND_ROBIN = 1.02
"""Batch time of the cost-aware shuffle over that of round robin."""

MAX_ESTIMATE_ERROR = 0.20
"""Median relative error of the estimated costs, the lightest rows left out."""

MAX_HOURS_OVER_ORACLE = 1.15
"""Executor-hours of autoscaling over those of an oracle that knows the load."""

MAX_LATE_OVER_ORACLE = 1.5
"""Rows later than the objective over those of the oracle."""

MAX_ACTIONS_A_STEP = 3
"""Changes of the number of executors from one step of the load to the next."""

MAX_SHARE_WHEN_SLOWED = 0.60
"""The share of an executor slowed twofold over what it was."""
