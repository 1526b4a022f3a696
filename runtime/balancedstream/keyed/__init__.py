"""Key assignment: hot keys of a stateful operator go to other state partitions, live.

How it works, and what it is credited to, is told in `core.epochs`. Nothing is imported here: Spark
starts a Python worker for each task of a stateful operator, which loads what it needs and no more.
"""
