"""`/metrics` for Prometheus: what the drivers serve."""
