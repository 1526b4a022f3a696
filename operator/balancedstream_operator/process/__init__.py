"""What the process runs: kopf, a task for each stream, its passes, turns, threads, metrics."""
