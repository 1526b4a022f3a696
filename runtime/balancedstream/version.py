"""The one place of the version: wheel and package take it from here.

`release/repeat_version.py` writes it into chart, Dockerfile and pages. Beside it are the versions
of Spark.
"""

__version__ = "0.2.0"

TESTED_SPARK = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""Versions of Spark that all is tested with, oldest first."""


def say_install(extra: str) -> str:
    """How to install the package with an extra. Nothing is published, so it is from a clone.

    >>> say_install("spark")
    "in a clone of BalancedStream's repository: pip install '.[spark]'"
    """
    return f"in a clone of BalancedStream's repository: pip install '.[{extra}]'"
