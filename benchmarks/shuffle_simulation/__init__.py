"""The cost-aware shuffle without Spark: what `benchmarks/shuffle.py --simulate` runs."""
