"""Key assignment: hot keys of a stateful operator go to other state partitions, live.

`core.epochs` explains how it works and whose ideas it uses. Nothing is imported here: Spark starts
a Python worker for each task of a stateful operator, which should load only what it needs.
"""
