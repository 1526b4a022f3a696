"""What runs in Spark's Python workers; it imports nothing of the engine."""
