"""Reads, rewrites and compares the state in the checkpoint of a query that does not run."""
