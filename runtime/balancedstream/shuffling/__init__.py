"""Online Shuffle Grouping on Spark: rows go to the partition with the least estimated work.

`balancedstream.shuffle` is the entry point. A micro-batch passes through seven steps:

    marking     map tasks: hashes that distinguish rows
    routing     map tasks: the partition of each row, from the estimated costs
    (Spark)     `repartitionById`: the rows go there
    timing      reduce tasks: the user's function runs, and its time is measured by cost key
    joining     reduce tasks: its small outputs are joined before Spark gets them
    collecting  driver: the tasks' measurements become the next version of the learned costs
    folders     both: versions are stored, and each batch is pinned to one of them
"""
