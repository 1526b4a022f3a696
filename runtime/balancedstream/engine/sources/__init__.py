"""Rows that wait at the sources of a query: one file for each kind of source that tells."""
