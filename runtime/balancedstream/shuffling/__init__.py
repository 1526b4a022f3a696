"""Online Shuffle Grouping on Spark: rows go to the partition with the least estimated work.

`balancedstream.shuffle` is the way in. A micro-batch passes through seven steps:

    marking     map tasks: what tells rows apart, for Spark to hash
    routing     map tasks: the partition of each row, from what is known of costs
    (Spark)     `repartitionById`: the rows go there
    timing      reduce tasks: the user's function runs, and what it takes is told apart by cost key
    joining     its small outputs are put together before Spark gets them
    collecting  the driver: the tasks' measurements become the next version of what is known
    folders     where versions are kept, and which of them a batch is routed by
"""
