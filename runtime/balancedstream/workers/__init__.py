"""Code for Spark's Python workers; it imports nothing from the engine."""
